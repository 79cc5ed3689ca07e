"""Self-contained HTML pages: Vega-Lite charts, templates, everything in one file."""
