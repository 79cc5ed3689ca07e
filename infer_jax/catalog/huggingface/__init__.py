"""Reads a Hugging Face `config.json` as an Architecture."""
