"""One module per published source or case study; each prints ours beside theirs."""
