"""Stages of a query: one file for each option or signal, with its formula."""
