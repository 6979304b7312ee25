"""Metrics: their table, the meter, and the formats of Prometheus."""
