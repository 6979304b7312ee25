"""From the layout of the earlier TypeScript ability into that of today, embeddings kept."""
