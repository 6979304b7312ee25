"""An example of an extension: a format, an option of a query with its stage, and a command."""
