"""The store: collections, chunks, jobs and usage behind one port, in memory or in ArcadeDB."""
