"""Local files: selection, and extraction of their text in a separate process."""
