"""The extensions, one folder each: all that stands on the core and can be taken away."""
