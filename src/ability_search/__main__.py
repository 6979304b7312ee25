"""``python -m ability_search``: the command of this name, by whichever extension it comes."""

from importlib.metadata import entry_points

if __name__ == "__main__":
    next(iter(entry_points(group="console_scripts", name="ability-search"))).load()()
