"""The check of the demo: what must be in the table, computed again from what is in the table.

In: every item, as plain values, and what the writers know. Out: the differences, none if all is
well. Nothing here uses streamkit or the handlers: likes are counted, audiences looked up and
messages compared in a few lines of plain Python.

A message may be missing if its user deleted it or its deal has expired; DynamoDB promises no
moment for the latter. It must be unread unless its user read it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from handlers.deals.traffic import Ledger

Item = Mapping[str, Any]


@dataclass
class Check:
    """One comparison: how many things were compared, and what was not as it must be."""

    title: str
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, what: str, found: object, expected: object) -> None:
        """Compare one thing."""
        self.compared += 1
        if found != expected:
            self.differences.append(f"{what}: {found} in the table, {expected} expected")


def checks(items: Iterable[Item], ledger: Ledger, now: datetime) -> list[Check]:
    """Compare everything that handlers keep with what it follows from."""
    table = _ByType(items)
    return [
        _count(table, "likes per brand", "BRANDLIKE", "brand", "likes"),
        _count(table, "watches per brand", "BRANDWATCH", "brand", "watches"),
        _count(table, "likes per category", "CATEGORYLIKE", "category", "likes"),
        _count(table, "watches per category", "CATEGORYWATCH", "category", "watches"),
        _unread(table),
        _brands(table),
        _messages(table, ledger, now),
    ]


class _ByType:
    def __init__(self, items: Iterable[Item]) -> None:
        self._items: dict[str, list[Item]] = {}
        for item in items:
            self._items.setdefault(item["PK"].partition("#")[0], []).append(item)

    def __getitem__(self, prefix: str) -> list[Item]:
        return self._items.get(prefix, [])


def _count(table: _ByType, title: str, source: str, group: str, measure: str) -> Check:
    expected = Counter(item[group] for item in table[source])
    # The key of a count is the key of what it counts in the plural.
    plural = f"{source}ES" if source.endswith("H") else f"{source}S"
    return _compare_counts(title, _counts(table[plural], group, measure), expected)


def _unread(table: _ByType) -> Check:
    expected = Counter(item["username"] for item in table["MESSAGES"] if item["unread"])
    found = _counts(table["UNREAD"], "username", "unread")
    return _compare_counts("unread messages per user", found, expected)


def _counts(items: Iterable[Item], group: str, measure: str) -> dict[str, int]:
    return {item[group]: item[measure] for item in items}


def _compare_counts(title: str, found: Mapping[str, int], expected: Mapping[str, int]) -> Check:
    check = Check(title)
    for name in sorted(found.keys() | expected.keys()):
        check.compare(name, found.get(name, 0), expected.get(name, 0))
    return check


def _brands(table: _ByType) -> Check:
    check = Check("names in the set of brands")
    found = {name for item in table["BRANDS"] for name in item.get("names", ())}
    expected = {item["brand"] for item in table["BRAND"]}
    for name in sorted(found | expected):
        check.compare(name, name in found, name in expected)
    return check


def _messages(table: _ByType, ledger: Ledger, now: datetime) -> Check:
    check = Check("messages to watchers")
    expected = set(_told(table, ledger))
    found: dict[tuple[str, str], list[Item]] = {}
    for item in table["MESSAGES"]:
        found.setdefault((item["username"], item["deal_id"]), []).append(item)
    for about in sorted(found.keys() | expected):
        user, deal_id = about
        messages = found.get(about, [])
        expires = ledger.posted[deal_id].expires if deal_id in ledger.posted else None
        if not messages and expires is not None and expires <= now:
            continue
        must_be = "none"
        if about in expected and about not in ledger.deleted:
            must_be = "read" if about in ledger.read else "unread"
        check.compare(f"the message to {user} of deal {deal_id}", _state(messages), must_be)
    return check


def _state(messages: list[Item]) -> str:
    if len(messages) > 1:
        return f"{len(messages)} of them"
    if not messages:
        return "none"
    return "unread" if messages[0]["unread"] else "read"


def _told(table: _ByType, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Say which user must have been told of which deal, from the watches in the table."""
    audiences: dict[tuple[str, str], set[str]] = {}
    for prefix, group in (("BRANDWATCH", "brand"), ("CATEGORYWATCH", "category")):
        for watch in table[prefix]:
            audiences.setdefault((group, watch[group]), set()).add(watch["username"])
    for deal in ledger.posted.values():
        for_brand = audiences.get(("brand", deal.brand), set())
        for_category = audiences.get(("category", deal.category), set())
        for user in for_brand | for_category:
            yield user, deal.deal_id
