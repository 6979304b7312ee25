"""Parts that artifacts still use."""
