"""REPORTS: answers as one page that needs nothing else: pictures, tables, engine flags, sources."""
