"""The HTTP gateway to the tools; a separate process that is an ordinary client of the broker.

Needs the extra ``gateway``.
"""
