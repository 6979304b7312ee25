"""Ranking: term weights, fusion and rescoring. Pure; one formula per function."""
