"""A KADI network on one machine: a broker, a database and a model manager.

Each part is replaceable by the real thing; none of them knows anything of search.
"""
