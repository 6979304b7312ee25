"""What goes over the wire: the inputs and results of the eight tools, camelCase and flat."""
