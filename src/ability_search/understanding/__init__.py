"""Query understanding and dates, without a model: exclusions, periods, intent. Pure, English."""

from ability_search.understanding.dated import chunk_periods, from_numbers, to_numbers
from ability_search.understanding.events import Event
from ability_search.understanding.exclusion import find_exclusions
from ability_search.understanding.intent import Intent, Recognized, understand
from ability_search.understanding.order import Order
from ability_search.understanding.periods import (
    Period,
    buckets,
    buckets_of_query,
    date_of,
    day_of,
    iso_day,
)
from ability_search.understanding.timeframe import find_timeframe

__all__ = [
    "Event",
    "Intent",
    "Order",
    "Period",
    "Recognized",
    "buckets",
    "buckets_of_query",
    "chunk_periods",
    "date_of",
    "day_of",
    "find_exclusions",
    "find_timeframe",
    "from_numbers",
    "iso_day",
    "to_numbers",
    "understand",
]
