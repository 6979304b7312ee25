from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from tests.ability_search.evaluation.sets import mode_run, run_of

from ability_search.errors import InvalidInput
from ability_search.evaluation.comparison import compare
from ability_search.evaluation.plots import check_suffix, comparison_figure, run_figure, save

MANY = {f"q{n}": f"category {n} $_{{" for n in range(20)}
MODES = {
    "semantic": mode_run(dict.fromkeys(MANY, 0.5), MANY),
    "hybrid": mode_run({id: n / 20 for n, id in enumerate(MANY)}, MANY),
}


def labels(axes: Axes) -> list[str]:
    return [tick.get_text() for tick in axes.get_yticklabels()]


def test_a_run_shows_metrics_recall_and_every_category() -> None:
    figure = run_figure(run_of(MODES, name="r"))
    by_title = {axes.get_title(): axes for axes in figure.axes}
    assert set(by_title) == {"all queries", "recall", "nDCG@10 by category (queries)"}
    categories = by_title["nDCG@10 by category (queries)"]
    # The best on top, which is the last one from below.
    assert labels(categories)[-1] == f"{MANY['q19']} (1)"
    assert len(labels(categories)) == 20
    assert len(categories.patches) == 2 * 20
    assert [line.get_label() for line in by_title["recall"].lines] == ["semantic", "hybrid"]


def test_a_run_without_categories_shows_the_rest() -> None:
    figure = run_figure(run_of({"keyword": mode_run({"q": 1.0})}))
    assert [axes.get_title() for axes in figure.axes] == ["all queries", "recall"]


def test_a_comparison_shows_each_metric_and_the_categories_by_their_difference() -> None:
    run = run_of(MODES)
    found = compare(run, run, mode_a="semantic", mode_b="hybrid")
    metrics, categories = comparison_figure(found).axes
    assert labels(metrics)[::-1] == ["nDCG@10", "Hit@1"]
    assert labels(categories)[-1] == f"{MANY['q19']} (1)"
    assert labels(categories)[0] == f"{MANY['q0']} (1)"
    alone = run_of({"hybrid": mode_run({"q": 1.0})})
    assert len(comparison_figure(compare(alone, alone, mode_a="hybrid", mode_b="hybrid")).axes) == 1


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_written_in_the_format_of_its_suffix(
    tmp_path: Path, suffix: str, begins: bytes
) -> None:
    path = tmp_path / "pictures" / f"run{suffix}"
    save(run_figure(run_of(MODES)), path)
    assert path.read_bytes().startswith(begins)


def test_other_suffixes_are_refused() -> None:
    check_suffix(Path("a.PNG"))
    with pytest.raises(InvalidInput, match=r"must end in \.png, \.svg, \.pdf"):
        check_suffix(Path("a.txt"))
