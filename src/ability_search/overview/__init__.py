"""Overview of a collection: chunk sizes, growth and a map."""
