"""What a collection is like as a whole: its chunk sizes, its growth, a map of it."""

from ability_search.overview.service import Map, Overview, Point, Sizes, Wanted, look_over
from ability_search.overview.times import Growth, Period

__all__ = ["Growth", "Map", "Overview", "Period", "Point", "Sizes", "Wanted", "look_over"]
