"""Verdicts: what the failure of a conditional write or a transaction means. Pure.

In: the service's error. Out: the effects whose conditions did not hold; or that DynamoDB finds an
action invalid; or that the same write is worth another try. DynamoDB stops at the first invalid
action and gives no reasons for the other actions, so the absence of a reason proves nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streamkit.aws import ErrorKind, code_of, is_throttled, trouble_of
from streamkit.progress.actions import GuardSource, Wire

_INVALID = {"ValidationError", "ItemCollectionSizeLimitExceeded"}


class RefusedCommit(msgspec.Struct, frozen=True):
    """Nothing was applied, because these conditions did not hold.

    `items` maps the place of each refused action to its item as it is now; None if there is no
    item, or if the request did not ask for it.
    """

    sources: tuple[GuardSource, ...] = ()
    items: Mapping[int, dict[str, Wire] | None] = msgspec.field(default_factory=dict)


class Invalid(msgspec.Struct, frozen=True):
    """Nothing was applied, and never will be, because DynamoDB finds an action invalid.

    `actions` are the indexes of the invalid actions, empty if the service did not say.
    """

    actions: tuple[int, ...]
    code: str

    @property
    def text(self) -> str:
        """Return the message for people."""
        if not self.actions:
            return "DynamoDB finds the request invalid"
        return f"DynamoDB finds item {self.actions[0]} of a transaction invalid"


class Again(msgspec.Struct, frozen=True):
    """Nothing was applied: another transaction was using an item, or the table throttles."""

    throttled: bool


def judge(error: Exception) -> RefusedCommit | Invalid | Again | None:
    """Return what an error means; None if the service refuses this caller for good.

    After a time-out or a fault of the service the verdict is `Again`, although the write may have
    been applied. That is harmless under a condition that success makes false.
    """
    match trouble_of(error):
        case ErrorKind.CANCELED:
            return _canceled(error)
        case ErrorKind.CONDITION:
            return RefusedCommit(items={0: getattr(error, "response", {}).get("Item")})
        case ErrorKind.INVALID:
            return Invalid((), code_of(error))
        case ErrorKind.CONFLICT | ErrorKind.UNKNOWN:
            return Again(throttled=False)
        case ErrorKind.THROTTLED:
            return Again(throttled=True)
    return None


def reasons_of(error: Exception) -> Sequence[Mapping[str, Any]]:
    """Return why each action of a transaction was canceled, in the order of the actions."""
    response: dict[str, Any] = getattr(error, "response", {})
    reasons: Sequence[Mapping[str, Any]] = response.get("CancellationReasons", [])
    return reasons


def _canceled(error: Exception) -> RefusedCommit | Invalid | Again:
    reasons = reasons_of(error)
    codes = [reason.get("Code", "None") for reason in reasons]
    invalid = tuple(place for place, code in enumerate(codes) if code in _INVALID)
    if invalid:
        return Invalid(invalid, "ValidationError")
    refused = {
        place: reasons[place].get("Item")
        for place, code in enumerate(codes)
        if code == "ConditionalCheckFailed"
    }
    if refused:
        return RefusedCommit(items=refused)
    return Again(throttled=is_throttled(getattr(error, "response", {})))
