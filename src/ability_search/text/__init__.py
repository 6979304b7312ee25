"""Text: analysis for keyword search, chunkers, and loaders of file formats."""
