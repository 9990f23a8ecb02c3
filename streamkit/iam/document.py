"""Documents: policies as IAM takes them. Pure.

In: statements, with a reason each. Out: JSON's types. A policy has no place for reasons, so that
they are for whoever asks, beside it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

MANAGED_MAX = 6144
"""Characters of a managed policy, white space left out (IAM quotas); a role's inline ones: 10,240.
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """Some actions on some resources, IF the condition holds; `why` somebody needs them."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str
    condition: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    effect: Literal["Allow", "Deny"] = "Allow"

    def to_dict(self) -> dict[str, Any]:
        """Return it as IAM takes it."""
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
class Policy:
    """A policy. `notes` are what could not be computed, for people."""

    statements: tuple[Statement, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as IAM takes it."""
        statements = [statement.to_dict() for statement in self.statements]
        return {"Version": "2012-10-17", "Statement": statements}

    @property
    def size(self) -> int:
        """Its characters as IAM counts them for its quotas."""
        return len(msgspec.json.encode(self.to_dict()).decode())


def only_keys(patterns: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the condition that every partition key of a call is like one of these.

    Of calls that name no key it holds, too: it belongs on actions that all name some.
    """
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": sorted(patterns)}}


def any_key(patterns: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the condition that one partition key of a call is like one of these, for a Deny."""
    return {"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": sorted(patterns)}}


def literal(text: str) -> str:
    """Return text that a pattern takes as it is."""
    return "".join(f"${{{char}}}" if char in "*?$" else char for char in text)
