"""Character classes."""

from __future__ import annotations

import pytest

from ability_search.text.characters import classify


@pytest.mark.slow
def test_every_code_point_has_a_class() -> None:
    every = "".join(map(chr, range(0x110000)))
    classes = classify(every)
    assert len(classes) == len(every)
    assert set(classes) == set("aAdmhkgterxj _-'.&,/\\:@+#")
    assert classify(every) == classes
