"""Wire format: inputs and results of the eight tools, camelCase and flat."""
