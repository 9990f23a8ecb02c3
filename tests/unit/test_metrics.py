"""Metrics: one list of names, instruments that count, and the forms in which they are read."""

import json
import math
import re
from itertools import pairwise

import pytest

from streamkit.errors import InvariantError
from streamkit.observe.emf import EmfMetrics
from streamkit.observe.exposition import render
from streamkit.observe.meters import Meters
from streamkit.observe.metrics import METRICS, SECONDS, NoMetrics, join
from streamkit.observe.registry import Registry
from tests.pages import PAGES

OWN = {"consumer": "shop"}


def counted(*hooks):
    meters = Meters(join(*hooks), "shop")
    meters.commits.add()
    meters.commits.add(2)
    meters.lag.set(1.5)
    meters.handler("mail").changes.add()
    meters.handler("mail").seconds.record(0.003)
    meters.handler("mail").seconds.record(99.0)
    meters.use("Query", 0.5)
    return meters


def test_the_page_lists_every_metric_with_its_kind_unit_and_labels():
    rows = re.findall(
        r"^\| `(streamkit_\w+)` \| (\w+) \| (\w+) \| (.*?) \| (.*?) \|$",
        PAGES["docs/operating.md"],
        re.MULTILINE,
    )
    listed = [
        (name, kind, unit, tuple(labels.split(", ")), text)
        for name, kind, unit, labels, text in rows
    ]
    assert listed == [(m.name, m.kind, m.unit, m.labels, m.text) for m in METRICS.values()]


def test_names_say_what_is_counted_and_labels_are_never_of_an_item():
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.name.endswith("_seconds") == (metric.unit == "seconds")
        assert set(metric.labels) <= {"consumer", "handler", "operation"}


def test_what_is_counted_is_found_again_by_its_labels():
    registry = Registry()
    counted(registry)
    assert registry.total("streamkit_commits_total", consumer="shop") == 3
    assert registry.total("streamkit_commits_total", consumer="other") == 0
    assert registry.values("streamkit_changes_total") == {("shop", "mail"): 1.0}
    assert registry.histogram("streamkit_handler_seconds", OWN | {"handler": "mail"}).count == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("streamkit_nothing", OWN),
        ("streamkit_lag_seconds", {}),
        ("streamkit_shards", OWN | {"key": "x"}),
    ],
)
def test_a_name_or_a_label_that_is_not_listed_is_refused(name, labels):
    with pytest.raises(InvariantError):
        Registry().gauge(name, labels)


def test_a_gauge_that_is_not_known_is_left_out():
    registry = Registry()
    meters = counted(registry)
    assert "streamkit_shards" not in render(registry), "nobody has said"
    meters.lag.set(math.nan)
    assert "streamkit_lag_seconds" not in render(registry)


def test_prometheus_reads_counters_gauges_and_cumulative_buckets():
    registry = Registry()
    counted(registry)
    lines = render(registry).splitlines()
    assert 'streamkit_commits_total{consumer="shop"} 3' in lines
    assert 'streamkit_lag_seconds{consumer="shop"} 1.5' in lines
    name = 'streamkit_handler_seconds_bucket{consumer="shop",handler="mail",le='
    buckets = [line.removeprefix(name) for line in lines if line.startswith(name)]
    assert len(buckets) == len(SECONDS) + 1
    assert buckets[:5] == ['"0.0005"} 0', '"0.001"} 0', '"0.0025"} 0', '"0.005"} 1', '"0.01"} 1']
    assert buckets[-2:] == ['"10"} 1', '"+Inf"} 2']
    assert 'streamkit_handler_seconds_sum{consumer="shop",handler="mail"} 99.003' in lines
    assert 'streamkit_handler_seconds_count{consumer="shop",handler="mail"} 2' in lines


def test_a_value_on_a_bound_is_in_the_bucket_of_that_bound():
    spread = Registry().histogram("streamkit_handler_seconds", OWN | {"handler": "mail"})
    spread.record(SECONDS[0])
    assert spread.counts[0] == 1


def test_every_line_has_the_form_that_prometheus_asks_for_whatever_a_handler_is_called():
    registry = Registry()
    Meters(registry, 'a"b\\c\nd').handler("x").changes.add()
    label = r'\w+="(?:[^"\\\n]|\\["\\n])*"'
    line = re.compile(rf"# (HELP|TYPE) \w+ .+|\w+\{{{label}(,{label})*\}} [-+.\w]+")
    text = render(registry)
    assert text.endswith("\n")
    assert all(line.fullmatch(one) for one in text.splitlines())


def test_several_hooks_are_told_the_same_and_none_may_be_missing():
    first, second = Registry(), Registry()
    counted(first, None, second)
    assert render(first) == render(second) != ""
    assert join(first, None) is first
    assert isinstance(join(None), NoMetrics)


def test_what_a_handler_has_written_and_what_aws_has_throttled_is_counted():
    registry = Registry()
    meters = counted(registry)
    meters.done("mail", 3, 5)
    meters.throttle("Query")
    assert registry.total("streamkit_changes_total", handler="mail") == 4
    assert meters.handler("mail").effects.value == 5
    assert registry.total("streamkit_throttles_total", operation="Query") == 1
    assert (meters.used.throttled, meters.used.read) == (1, 0.5)


# -- on Lambda -------------------------------------------------------------------------------------


def test_an_invocation_is_one_line_that_cloudwatch_takes_for_metrics():
    metrics = EmfMetrics("shop")
    counted(metrics)
    line = json.loads(metrics.line(now=1_800_000_000.25))
    assert line["_aws"]["Timestamp"] == 1_800_000_000_250
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("streamkit", [["consumer"]])
    units = {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
    assert units["streamkit_handler_seconds"] == "Seconds"
    assert units["streamkit_commits_total"] == "Count"
    assert units.keys() == line.keys() - {"_aws", "consumer"}
    assert line["streamkit_commits_total"] == 3
    assert line["streamkit_handler_seconds"] == [0.003, 99.0]


def test_a_line_holds_what_came_since_the_last_one_and_none_is_written_of_nothing():
    metrics = EmfMetrics("shop")
    meters = counted(metrics)
    assert metrics.line(0.0) is not None
    assert metrics.line(0.0) is None
    meters.lag.set(math.nan)
    assert metrics.line(0.0) is None
    meters.commits.add()
    assert json.loads(metrics.line(0.0))["streamkit_commits_total"] == 1


def test_a_line_adds_up_handlers_and_never_has_more_values_than_cloudwatch_takes():
    metrics = EmfMetrics("shop")
    meters = Meters(metrics, "shop")
    for number in range(1000):
        handler = meters.handler(f"handler{number % 3}")
        handler.changes.add()
        handler.seconds.record(float(number))
    line = json.loads(metrics.line(0.0))
    assert line["streamkit_changes_total"] == 1000
    values = line["streamkit_handler_seconds"]
    assert 50 <= len(values) <= 100
    assert values[0] == 0.0
    assert values[-1] > 900, "the last ones count as much as the first"
    gaps = {after - before for before, after in pairwise(values)}
    assert len(gaps) == 1, "so do those between them"
    for number in range(3):
        meters.handler("handler0").seconds.record(float(number))
    assert json.loads(metrics.line(0.0))["streamkit_handler_seconds"] == [0.0, 1.0, 2.0]
