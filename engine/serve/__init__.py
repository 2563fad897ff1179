"""The OpenAI-compatible HTTP service around one engine. Imports no torch."""
