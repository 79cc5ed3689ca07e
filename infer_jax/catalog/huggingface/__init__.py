"""Hugging Face configs: what a `config.json` says, as an Architecture."""
