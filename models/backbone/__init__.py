"""The language model that is replayed: in vLLM, or behind an OpenAI-compatible server."""
