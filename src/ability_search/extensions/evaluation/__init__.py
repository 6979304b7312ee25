"""Evaluation of search quality: judged sets, runs of their queries, comparisons of runs.

The modules ``evaluator`` and ``comparison`` need the extra ``eval``; only the command `eval`
imports them.
"""
