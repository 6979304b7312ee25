"""The process that reads files in risky formats for another one."""

from __future__ import annotations

import os
import sys

from ability_search.extension import SETTING, load
from ability_search.files.isolated_reader import serve

if __name__ == "__main__":
    load([name for name in os.environ.get(SETTING, "").split(",") if name])
    serve(int(sys.argv[1]))
