"""A campaign of random operations and faults against a local stack; ``python -m chaos --help``."""
