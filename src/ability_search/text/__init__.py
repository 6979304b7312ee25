"""Text: analysis for keyword search, BM25, chunkers, and loaders of file formats."""
