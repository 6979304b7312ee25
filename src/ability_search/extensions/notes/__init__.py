"""Analysis of a collection: the graph of its chunks, and the geometry of their vectors."""
