"""Parts of the offloading experiment."""
