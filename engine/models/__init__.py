"""From a name to a model in memory: locate, read (GGUF or safetensors), build (Llama family)."""
