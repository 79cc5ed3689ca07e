"""Parts of the chapter experiment."""
