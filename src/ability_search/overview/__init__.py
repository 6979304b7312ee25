"""Overview of a collection: chunk sizes, growth and a map."""

from ability_search.overview.service import Map, Overview, Point, Sizes, Wanted, look_over
from ability_search.overview.times import Growth, Period

__all__ = ["Growth", "Map", "Overview", "Period", "Point", "Sizes", "Wanted", "look_over"]
