"""What `deploy/` says, read: its files, templates, alarms and commands."""

import re
from pathlib import Path
from typing import Any

import yaml

from streamkit.observe.metrics import METRICS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text()
TEMPLATES = (
    "table.yaml",
    "ecs/service.yaml",
    "ecs/migration.yaml",
    "lambda/template.yaml",
    "lambda/migration.yaml",
    "monitoring/cloudwatch.yaml",
)
OUTPUT = {"build", "dist", "__pycache__"}
"""Folders that are made, not written."""


def texts() -> dict[str, str]:
    """Return the text of every file of `deploy/`."""
    files = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
    named = {path.relative_to(DEPLOY): path for path in files}
    return {str(n): path.read_text() for n, path in named.items() if not OUTPUT & set(n.parts)}


class _Templates(yaml.SafeLoader):
    """YAML with the short forms of functions, which become their long ones."""

    def function(self, name: str, node: yaml.Node) -> dict[str, Any]:
        if isinstance(node, yaml.ScalarNode):
            value: Any = self.construct_scalar(node)
        else:
            value = self.construct_sequence(node, deep=True)  # type: ignore[arg-type]
        if name == "GetAtt":
            value = value.split(".", 1)
        return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}


_Templates.add_multi_constructor("!", _Templates.function)


def template(name: str) -> dict[str, Any]:
    """Read a CloudFormation template; `!Sub x` becomes `{"Fn::Sub": "x"}`."""
    return yaml.load((DEPLOY / name).read_text(), _Templates)


def documents(name: str) -> list[dict[str, Any]]:
    """Read plain YAML."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def cloudwatch_alarms(*, names: tuple[str, ...] = TEMPLATES) -> dict[str, dict[str, Any]]:
    """Return the properties of all alarms that are named, by what stands before the dash."""
    found = {}
    for name in names:
        for resource in template(name)["Resources"].values():
            alarm = resource["Properties"]
            if resource["Type"] == "AWS::CloudWatch::Alarm" and "AlarmName" in alarm:
                found[alarm["AlarmName"]["Fn::Sub"].removesuffix("-${Consumer}")] = alarm
    return found


def prometheus_alarms() -> dict[str, dict[str, Any]]:
    """Return the rules by name."""
    (rules,) = documents("monitoring/prometheus-rules.yaml")
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}


def metric_of(series: str) -> Any:
    """Return the metric that a series in Prometheus is of."""
    return METRICS.get(series) or METRICS[re.sub(r"_(bucket|sum|count)$", "", series)]
