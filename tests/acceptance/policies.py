"""What the templates of `deploy/` must say of the deals app: its policies, and its mapping's filter.

`python -m tests.acceptance.policies` writes them into the templates.
"""

import json
import re
from pathlib import Path
from typing import Any

from handlers.deals.handlers import SHAPE, app
from streamkit.aws_lambda.filters import criteria
from streamkit.core.table_shape import entities_of
from streamkit.model.schema import TableSchema
from streamkit.operate.permissions.hosts import Host, policy_for
from streamkit.operate.permissions.place import AccountPlace
from tests.acceptance.deployment import DEPLOY

HOSTS: dict[str, Host] = {
    "ecs/service.yaml": "worker",
    "ecs/migration.yaml": "migrate",
    "lambda/template.yaml": "lambda",
    "lambda/migration.yaml": "migrate",
}
PLACE = AccountPlace("${AWS::AccountId}", "${AWS::Region}", "${AWS::Partition}", "${TableName}")


def policy_of(host: Host) -> dict[str, Any]:
    """Return a host's policy, as wide as the stack that it is in."""
    return policy_for(app, host, PLACE, function="streamkit-${Consumer}-*").to_dict()


def wanted_filter() -> dict[str, Any]:
    """Return the filter criteria for the table that the template makes."""
    schema = TableSchema.from_description(SHAPE.create_table(app.table, entities_of(app)))
    return criteria(app, schema).to_dict()


def _policy_lines(host: Host) -> list[str]:
    lines = ['Version: "2012-10-17"', "Statement:"]
    for statement in policy_of(host)["Statement"]:
        lines += [f"  - Sid: {statement['Sid']}", f"    Effect: {statement['Effect']}"]
        for name in ("Action", "Resource"):
            lines += [f"    {name}:", *(f"      - {_scalar(one)}" for one in statement[name])]
        for operator, keys in statement.get("Condition", {}).items():
            lines += ["    Condition:", f"      {operator}:"]
            for key, patterns in keys.items():
                lines += [f"        {key}:", *(f"          - {json.dumps(p)}" for p in patterns)]
    return lines


def _scalar(text: str) -> str:
    if "${AWS::" in text:
        return f"!Sub {text}"
    return text if re.fullmatch(r"[A-Za-z][\w:-]*", text) else json.dumps(text)


def _filter_lines() -> list[str]:
    return [f"- Pattern: '{one['Pattern']}'" for one in wanted_filter()["Filters"]]


def _replace(path: Path, above: str, new: list[str], *, skip: int = 0) -> None:
    """Put lines in the place of what is indented below a line; `skip` lines below it stay."""
    lines = path.read_text().split("\n")
    start = lines.index(above) + 1 + skip
    indent = lines[start][: -len(lines[start].lstrip())]
    end = start
    while lines[end].startswith(indent):
        end += 1
    lines[start:end] = [indent + line for line in new]
    path.write_text("\n".join(lines))


def main() -> None:
    """Write all of them."""
    for name, host in HOSTS.items():
        _replace(DEPLOY / name, "        - PolicyName: streamkit", _policy_lines(host), skip=1)
    _replace(DEPLOY / "lambda/template.yaml", "              Filters:", _filter_lines())


if __name__ == "__main__":
    main()
