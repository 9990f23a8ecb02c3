"""The table of the benchmarks: what fails, what is worse than it was, and what is kept."""

from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks import page
from tests.benchmarks.__main__ import load_rows
from tests.benchmarks.plots import plot
from tests.benchmarks.recording import Recorded
from tests.benchmarks.report import change, failures, line
from tests.benchmarks.yardstick import Figure, Row, in_turns


def row(*figures, bar=2.0, less=False):
    left = list(figures)
    return Row("a row", "changes/CPU s", "the usual way", bar, less, lambda: left.pop(0))


def test_a_row_below_its_bar_fails_with_its_name():
    rows = {"a row": row()}
    assert failures(rows, {"a row": Figure(900.0, 2.1)}) == []
    (text,) = failures(rows, {"a row": Figure(900.0, 1.9)})
    assert text.startswith("a row: 1.90")
    assert line(rows["a row"], Figure(900.0, 1.9), None).endswith("FAILS")


def test_where_less_is_better_the_bar_is_the_most():
    rows = {"a row": row(less=True)}
    assert failures(rows, {"a row": Figure(1.9)}) == []
    assert failures(rows, {"a row": Figure(2.1)}) != []


def test_a_row_below_its_bar_is_measured_again_and_its_best_figure_counts():
    tried = row(Figure(800.0, 1.8), Figure(900.0, 1.9), Figure(700.0, 1.7))
    assert tried.taken() == Figure(900.0, 1.9)
    assert row(Figure(800.0, 1.8), Figure(1000.0, 2.5)).taken() == Figure(1000.0, 2.5)


@pytest.mark.parametrize(("less", "now"), [(False, 1.5), (True, 4.0)])
def test_a_row_that_is_worse_than_recorded_is_told(less, now):
    judged, before = row(bar=1.0 if not less else 5.0, less=less), Figure(1.0, 3.0)
    assert change(judged, Figure(1.0, now), before) < -0.2
    assert line(judged, Figure(1.0, now), before).endswith("worse")
    assert not line(judged, Figure(1.0, 3.1), before).endswith("worse")


def test_a_recorded_table_is_read_as_it_was_written(tmp_path):
    kept = Recorded("a machine", "2026-01-02", {"a row": Figure(900.0, 1.9), "b": Figure(3.0)})
    kept.write(tmp_path / "recorded.json")
    assert Recorded.read(tmp_path / "recorded.json") == kept
    assert Recorded.read(tmp_path / "missing.json").figures == {}


def test_the_best_round_of_each_counts_and_the_first_warms_up():
    first, second = iter([0.5, 3.0, 2.0]), iter([0.1, 9.0, 7.0])
    assert in_turns(lambda: next(first), lambda: next(second), rounds=2) == [2.0, 7.0]


def test_the_page_and_its_plots_show_what_is_recorded():
    load_rows()
    recorded = Recorded.read()
    text = page.PAGE.read_text()
    assert page.page(text, recorded) == text
    for place, drawn in page.plots(recorded).items():
        assert place.read_text() == drawn


def test_a_plot_is_well_formed_and_names_every_point():
    root = ET.fromstring(plot("a < b", "shards", [(1, 1.5), (1000, 2500.0)]))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a < b" in texts
    assert {"1", "1,000", "1.50", "2,500"} <= set(texts)
