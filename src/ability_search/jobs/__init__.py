"""Long operations that are recorded in the database, and who works on them."""
