"""The tools over HTTP: an edge beside the worker, a client of the broker like any other.

Needs the extra ``gateway``.
"""
