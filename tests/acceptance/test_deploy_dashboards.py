"""The dashboard of Grafana and its recording rules, held against the metrics of the code."""

import json
import re

import promql_parser
import pytest

from streamkit.observe.metrics import METRICS
from tests.acceptance.deployment import DEPLOY, documents, metric_of

(RECORDED,) = documents("monitoring/prometheus-recording.yaml")
RULES = {rule["record"]: rule["expr"] for group in RECORDED["groups"] for rule in group["rules"]}
BOARD = json.loads((DEPLOY / "monitoring" / "grafana.json").read_text())
TARGETS = [target for panel in BOARD["panels"] for target in panel["targets"]]


def series(expression):
    """The series that an expression selects."""
    promql_parser.parse(expression)
    return set(re.findall(r"\bstreamkit_\w+", expression))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_valid_and_takes_metrics_that_the_code_has_with_labels_that_they_have(name):
    expression, labels = RULES[name], name.split(":")[0].split("_")
    for one in series(expression):
        assert set(labels) <= set(metric_of(one).labels)
    (by,) = set(re.findall(r"by \(([^)]*)\)", expression.replace("le, ", "")))
    assert by.split(", ") == labels, "the name says which labels are left"


def test_the_rules_leave_out_no_metric():
    used = {metric_of(one).name for expression in RULES.values() for one in series(expression)}
    assert used == set(METRICS)


def test_the_dashboard_shows_every_rule_and_nothing_else():
    shown = {target["expr"].partition("{")[0] for target in TARGETS}
    assert shown == set(RULES)
    for target in TARGETS:
        promql_parser.parse(target["expr"].replace("$consumer", "deals"))
        assert target["expr"].endswith('{consumer=~"$consumer"}')


def test_panels_have_a_place_of_their_own_a_title_and_the_chosen_source():
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert all(
        panel["title"] and panel["fieldConfig"]["defaults"]["unit"] for panel in BOARD["panels"]
    )
    sources = {json.dumps(one["datasource"]) for one in [*BOARD["panels"], *TARGETS]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${source}"})}
    assert {one["name"] for one in BOARD["templating"]["list"]} == {"source", "consumer"}
    (query,) = [
        one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"
    ]
    assert set(re.findall(r"streamkit_\w+", query)) <= set(METRICS)
