"""Text to passages: pure functions, one module a strategy.

The chunks of every strategy cover each character that is not blank, in order, and each is a slice
of the text; only those of ``sliding-window`` overlap. None counts more than ``max_tokens``.
"""
