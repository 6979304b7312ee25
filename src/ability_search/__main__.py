"""``python -m ability_search``: the command line."""

from ability_search.extensions.cli import main

if __name__ == "__main__":
    main()
