"""Keep a collection in sync with local files: select them, send what changed, follow changes."""
