"""Text to token ids and back, without transformers: the tokenizer of a GGUF file or of a
Hugging Face folder. Invariant: ids equal those of the model's own published tokenizer."""

from engine.tokenizer.detokenizer import IncrementalDetokenizer, TokenBytes
from engine.tokenizer.stop import StopMatcher
from engine.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["IncrementalDetokenizer", "StopMatcher", "TokenBytes", "Tokenizer", "load_tokenizer"]
