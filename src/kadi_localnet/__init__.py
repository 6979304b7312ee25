"""What one machine needs to run a KADI network of its own: a broker, a database, a model manager.

Each part is replaceable by the real thing; none of them knows anything of search.
"""
