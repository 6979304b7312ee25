"""Measurements of the running product; ``make bench`` runs them all."""
