"""ability-search: the KADI ability that makes text findable."""

__version__ = "0.1.0"
