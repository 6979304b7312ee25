"""Ranking: weights, fusion, and what reorders a list. Pure; one formula a function."""
