"""What holds for every test."""

from __future__ import annotations

import os

from tests.java_machine import SHORT_LIVED

for name, value in SHORT_LIVED.items():
    os.environ.setdefault(name, value)
