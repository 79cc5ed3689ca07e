"""What others published of fleets, computed by the library: one file a source."""
