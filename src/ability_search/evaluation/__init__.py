"""Measuring what a search is worth: judged sets, runs of their queries, comparisons of runs.

The modules ``metrics``, ``measuring``, ``comparing`` and ``plots`` need the extra ``eval``; nothing
but the command line imports them, and only when it runs such a command.
"""
