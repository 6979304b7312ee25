"""Settings: their sources, precedence and validation.

``load_settings(environ, directory)`` reads everything once; :mod:`.schema` declares every setting.
"""
