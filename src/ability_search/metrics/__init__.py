"""What the parts count: the table of metrics, and what takes the numbers down."""

from ability_search.metrics.meter import UNMETERED, Meter, Read
from ability_search.metrics.table import METRICS, Metric

__all__ = ["METRICS", "UNMETERED", "Meter", "Metric", "Read"]
