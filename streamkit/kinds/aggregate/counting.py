"""Count items that exist already: an aggregate's handler while a build of it is under way.

The ledger says for each source item what is in the aggregate already. The first change of an item
that is counted adds c(new) - ledger entry, not c(new) - c(old), and makes the entry *live*;
later changes add c(new) - c(old), as usual. The scan, which reads every item once, adds c(image)
and writes the entry IF there is none. So the aggregate is always the sum of what the ledger says,
and it does not matter whether a change or the scan reaches an item first.

A change that is much younger than the end of the scan is the first of its item after the scan, or
comes after one that made the entry live: in both cases its old image contributes what the ledger
says. Such a change uses the image, because Lambda functions that count live already may run beside
this.

While the old contents are emptied, only functions use this handler, until the invocations that
began then have ended. They do not count an item without an entry, IF it still has none: handlers
that count by the ledger beside them, or the scan, count what they have passed over.

The order of an item's changes matters during a build: a parked change queues the later changes of
the item, and is retried by the same counting.

In: a change, or an image. Out: effects, and entries as text. On failure: what `group` or a measure
raises; the change is then parked.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamkit.changes import Change
from streamkit.core.handler import Handler
from streamkit.core.ledger import LIVE, Ledger, written
from streamkit.effects import Effect
from streamkit.entity import Entity
from streamkit.kinds.aggregate.aggregate import Aggregate, stored_as
from streamkit.kinds.aggregate.contributions import between, contributions, placed
from streamkit.model.builds import Build
from streamkit.model.codec import decode, encode
from streamkit.model.fields import dump_fields, validate_fields
from streamkit.model.keys import Key
from streamkit.progress.own_effects import Noted

if TYPE_CHECKING:
    from streamkit.table import Table

Extremes = Callable[[Change[Any], "Table"], Awaitable[list[Effect]]]
"""Computes a change's effects on the extremes of an aggregate, beside its sums."""


def counting_handler(
    aggregate: type[Aggregate[Any]],
    plain: Handler,
    build: Build,
    extremes: Extremes | None = None,
) -> Handler:
    """Return the handler that replaces an aggregate's own in one build, in its present state."""

    async def run(change: Change[Any], ledger: Ledger, **tools: Any) -> list[Effect]:
        effects = []
        if aggregate.__measures__:
            effects = await _by_ledger(aggregate, build, change, ledger)
        if extremes is not None:
            effects += await extremes(change, tools["table"])
        return effects

    return replace(
        plain,
        run=run,
        is_async=True,
        needs={**plain.needs, "ledger": Ledger},
        commutes=False,
        build=build.number,
    )


async def _by_ledger(
    aggregate: type[Aggregate[Any]], build: Build, change: Change[Any], ledger: Ledger
) -> list[Effect]:
    place = aggregate.__name__, build.number, change.key
    entry = await ledger.entry(*place) if build.state == "emptying" else None
    if entry is not None and entry.text is None:
        return []
    before, after = (contributions(aggregate, image) for image in (change.old, change.new))
    if not (before or after):  # no scan can have counted an image between the two
        return []
    entry = entry or await ledger.entry(*place)
    if entry.is_live:
        return placed(aggregate, between(before, after), change)
    younger = build.is_after(change.created_at.timestamp())
    seen = before if younger else read_entry(aggregate, entry.text)
    effects = placed(aggregate, between(seen, after), change)
    return [*effects, Noted(written(entry.ref, LIVE))]


def entry_text(aggregate: type[Aggregate[Any]], item: Entity) -> str:
    """Return what an image contributes, as an entry stores it."""
    stored = stored_as(aggregate)
    return json.dumps(
        [
            [
                key.pk,
                key.sk,
                {
                    name: encode(dump_fields(stored, {name: value})[name])
                    for name, value in key.fields
                },
                {name: str(amount) for name, amount in amounts.items()},
            ]
            for key, amounts in contributions(aggregate, item).items()
        ],
        separators=(",", ":"),
    )


def read_entry(
    aggregate: type[Aggregate[Any]], text: str | None
) -> Mapping[Key[Any], dict[str, Decimal]]:
    """Return what an entry says that an item contributes, by group and attribute."""
    stored = stored_as(aggregate)
    found: dict[Key[Any], dict[str, Decimal]] = {}
    for pk, sk, fields, amounts in json.loads(text or "[]"):
        given = {name: decode(wire) for name, wire in fields.items()}
        values = validate_fields(stored, given, where=f"the ledger of {aggregate.__name__}")
        key = Key(stored, pk, sk, tuple(values.items()))
        found[key] = {name: Decimal(amount) for name, amount in amounts.items()}
    return found
