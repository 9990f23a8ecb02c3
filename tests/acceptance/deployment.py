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


def read_template(text: str) -> dict[str, Any]:
    """Read a CloudFormation template; `!Sub x` becomes `{"Fn::Sub": "x"}`."""
    return yaml.load(text, _Templates)


def template(name: str) -> dict[str, Any]:
    """Read a template of `deploy/`."""
    return read_template((DEPLOY / name).read_text())


def documents(name: str) -> list[dict[str, Any]]:
    """Read plain YAML."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def containers(name: str) -> list[dict[str, Any]]:
    """Return the containers of all tasks of a template."""
    resources = template(name)["Resources"].values()
    tasks = [r for r in resources if r["Type"] == "AWS::ECS::TaskDefinition"]
    return [c for task in tasks for c in task["Properties"]["ContainerDefinitions"]]


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


class Resolved:
    """A template's resources as CloudFormation makes them of its parameters."""

    def __init__(self, given: dict[str, Any], known: dict[str, Any], **parameters: str) -> None:
        declared = given.get("Parameters", {}).items()
        defaults = {name: said["Default"] for name, said in declared if "Default" in said}
        aws = {
            "AWS::Region": "us-east-1",
            "AWS::AccountId": "123456789012",
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
        }
        self.known = defaults | aws | parameters | known
        self.conditions = given.get("Conditions", {})
        self.resources = {
            name: self.value(resource["Properties"])
            for name, resource in given["Resources"].items()
            if self.holds(resource.get("Condition")) and name not in known
        }
        self.types = {name: given["Resources"][name]["Type"] for name in self.resources}

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of all resources of a type, by logical name."""
        return {name: self.resources[name] for name, one in self.types.items() if one == kind}

    def holds(self, condition: str | None) -> bool:
        """Say whether a condition holds; there is none: it does."""
        return condition is None or self.value(self.conditions[condition])

    def value(self, part: Any) -> Any:
        """Evaluate a part of the template; None stands for `AWS::NoValue`."""
        if isinstance(part, list):
            return [one for given in part if (one := self.value(given)) is not None]
        if not isinstance(part, dict):
            return part
        match part:
            case {"Ref": "AWS::NoValue"}:
                return None
            case {"Ref": name}:
                return self.known.get(name, f"<{name}>")
            case {"Fn::GetAtt": [name, attribute]}:
                return self.known.get(f"{name}.{attribute}", f"<{name}.{attribute}>")
            case {"Fn::Sub": text}:
                return re.sub(r"\$\{([\w:.]+)\}", lambda m: str(self.value({"Ref": m[1]})), text)
            case {"Fn::If": [condition, yes, no]}:
                return self.value(yes if self.holds(condition) else no)
            case {"Fn::Equals": [one, other]}:
                return self.value(one) == self.value(other)
            case {"Fn::Join": [between, parts]}:
                return between.join(self.value(parts))
            case {"Fn::Split": [between, one]}:
                return self.value(one).split(between)
            case {"Fn::Not": [one]}:
                return not self.value(one)
        found = {name: self.value(one) for name, one in part.items()}
        return {name: one for name, one in found.items() if one is not None}


def runbook() -> dict[str, str]:
    """Return the severity of each alarm that the runbook knows."""
    return dict(
        re.findall(r"^\| `(Streamkit\w+)` \((\w+)\) \| .+? \| .+ \|$", README, re.MULTILINE)
    )
