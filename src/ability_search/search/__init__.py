"""Search: the way of a query, see :mod:`ability_search.search.pipeline`."""
