"""The database ability: ArcadeDB behind five tools, embedded in this process or over HTTP."""
