"""Build policies in the form that IAM takes. Pure.

In: statements, with a reason each. Out: JSON types. A policy has no place for reasons; the command
shows them beside it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

MANAGED_MAX = 6144
"""Characters of a managed policy without white space (IAM quotas); a role's inline ones: 10,240."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Some actions on some resources, IF the condition holds; `why` is the reason for them."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str
    condition: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    effect: Literal["Allow", "Deny"] = "Allow"

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form that IAM takes."""
        said: dict[str, Any] = {
            "Sid": self.sid,
            "Effect": self.effect,
            "Action": list(self.actions),
            "Resource": list(self.resources),
        }
        if self.condition:
            said["Condition"] = {name: dict(keys) for name, keys in self.condition.items()}
        return said


@dataclass(frozen=True, slots=True)
class IamPolicy:
    """A policy; `notes` say to people what could not be computed."""

    statements: tuple[Statement, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it in the form that IAM takes."""
        statements = [statement.to_dict() for statement in self.statements]
        return {"Version": "2012-10-17", "Statement": statements}

    @property
    def size(self) -> int:
        """Return the number of its characters as IAM counts them for its quotas."""
        return len(msgspec.json.encode(self.to_dict()).decode())


def only_keys(patterns: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the condition that every partition key of a call matches one of these patterns.

    The condition also holds for calls that name no key: use it only on actions that always name
    one.
    """
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": sorted(patterns)}}


def any_key(patterns: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the condition, for a Deny, that any partition key of a call matches one of these."""
    return {"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": sorted(patterns)}}


def literal(text: str) -> str:
    """Return text in which the characters that a pattern treats as special are escaped."""
    return "".join(f"${{{char}}}" if char in "*?$" else char for char in text)


def dynamodb_actions(names: Iterable[str]) -> tuple[str, ...]:
    """Return operations of DynamoDB as IAM names them, sorted."""
    return tuple(sorted(f"dynamodb:{name}" for name in set(names)))
