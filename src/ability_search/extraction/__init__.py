"""Reading files with libraries that may crash, hang or take any amount of memory."""

from ability_search.extraction.isolated import Extractor

__all__ = ["Extractor"]
