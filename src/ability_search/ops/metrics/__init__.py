"""What the parts count: the table of metrics, and what takes the numbers down."""
