"""The blocking client, for notebooks and scripts."""
