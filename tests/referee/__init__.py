"""A small decoder that really computes, to hold the counting laws against."""
