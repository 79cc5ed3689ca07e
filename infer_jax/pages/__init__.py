"""Reports as one self-contained HTML page: charts, tables, launch commands, sources."""
