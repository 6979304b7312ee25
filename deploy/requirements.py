"""Print the dependencies that pyproject.toml declares, and those of the extras named.

The images install them in a layer of their own, which the source is not part of.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The requirements of a project and of some of its extras, in the order of the file.

    Raises:
        KeyError: if there is no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])) + "\n")
