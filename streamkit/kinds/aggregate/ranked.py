"""Make the handler of an aggregate that has extremes, with or without counts and sums.

In: a change, and the table. Out: one write of a group's item for each group whose extremes it
changes. Entries that leave, entries that come and the change's sums are in the same write.

The item has two counters. `_rev` counts every contribution, `_entries_rev` those that changed the
entries. A contribution reads the entries, changes them if needed, and commits IF `_entries_rev` is
unchanged: so contributions of many shards that do not change the best few do not conflict. If one
of the best leaves and only the group can tell the next one, the handler queries the group's own
partition, strongly consistent, after it has read `_rev`, and the result commits IF `_rev` is
unchanged: no contribution came in between. The condition is not on the entries, because an item
might have come and gone unseen. The query reads what is committed, without the pending effects of
other handlers: those were never in the table together with the rest that it finds.

When one of an item's changes is parked, its later changes are queued in order: an older value that
came after a newer one would stay for ever. So such an aggregate does not commute, and unlike one of
sums it has queued keys. An emptied group keeps its item, because a new item would count from 0
again.

On failure: the change is parked, its item's later changes wait behind it, other items continue.
"""

import inspect
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from streamkit.changes import Change
from streamkit.core.handler import Handler
from streamkit.core.querying import in_bounds
from streamkit.effects import Effect
from streamkit.entity import Entity, attribute_names, spec_of
from streamkit.errors import USER_ERRORS, DeclarationError
from streamkit.kinds.aggregate.aggregate import Aggregate, source_of
from streamkit.kinds.aggregate.contributions import contributions, difference, placed, placed_by
from streamkit.kinds.aggregate.counting import counting_handler
from streamkit.kinds.aggregate.entries import RankedEntry, Source, source_of_entry, stored_ranks
from streamkit.kinds.aggregate.extremes import (
    ENTRIES_REVISION,
    REVISION,
    Extreme,
    check_extremes,
    entries_of,
    extremes_of,
    ranks_attribute,
    stored_entries,
)
from streamkit.model.codec import encode_key
from streamkit.model.declaration import Declaration
from streamkit.model.keys import Key
from streamkit.model.queries import Query
from streamkit.progress.actions import item_ref
from streamkit.progress.own_effects import Accumulate, Store
from streamkit.table import Table

Ranked = type[Aggregate[Any]]


def ranked_handler(aggregate: Ranked, plain: Handler) -> Handler:
    """Make the handler of an aggregate with extremes from that of its counts and sums.

    Raises:
        DeclarationError: a measure names an unknown field, `members` is missing, takes other
            arguments than the fields of the group's key, or reads an index.
    """
    check_extremes(aggregate, source_of(aggregate))
    _check_members(aggregate)

    async def run(change: Change[Any], table: Table) -> list[Effect]:
        effects = placed(aggregate, difference(aggregate, change.old, change.new), change)
        return [*effects, *await extremes(change, table)]

    async def extremes(change: Change[Any], table: Table) -> list[Effect]:
        effects: list[Effect] = []
        for key, moves in _moves(aggregate, change, table).items():
            counted = placed(aggregate, [Accumulate(key, {REVISION: Decimal(1)})], change)
            if counted:  # none, if the bucket is over
                effects += [*counted, *await _write(aggregate, key, moves, table)]
        return effects

    def together(change: Change[Any]) -> Iterable[Key[Any]]:
        return contributions(aggregate, change.old) | contributions(aggregate, change.new)

    ranked = replace(
        plain,
        run=run,
        is_async=True,
        needs={"table": Table},
        commutes=False,
        together=together,
    )
    in_build = partial(counting_handler, aggregate, ranked, extremes=extremes)
    return replace(ranked, in_build=in_build)


async def recompute(
    aggregate: Ranked, key: Key[Any], table: Table, names: Iterable[str]
) -> dict[str, list[RankedEntry]]:
    """Return the entries that a group has now, by field name, from its committed items.

    Raises:
        DeclarationError: `members` returns something else than a query of the source's table.
    """
    extremes = extremes_of(aggregate)
    found: dict[str, list[RankedEntry]] = {name: [] for name in names}
    query = members_of(aggregate, key)
    async for item in table.committed().query(query):
        if key not in contributions(aggregate, item):
            continue
        for name, entry in entries_of(aggregate, item, table.schema).items():
            if name in found:
                found[name].append(entry)
                if len(found[name]) > 2 * extremes[name].ranking.size:
                    found[name] = extremes[name].ranking.best(found[name])
    return {name: extremes[name].ranking.best(entries) for name, entries in found.items()}


def has_members(aggregate: Ranked) -> bool:
    """Return whether an aggregate defines the query of a group's items; only extremes need it."""
    own = aggregate.members.__func__  # type: ignore[attr-defined]
    return own is not Aggregate.members.__func__  # type: ignore[attr-defined]


def members_of(aggregate: Ranked, key: Key[Any]) -> Query[Any]:
    """Return the query of a group's items.

    Raises:
        DeclarationError: it is not a whole query of the source's own table.
    """
    query: Any = aggregate.members(**dict(key.fields))
    where = f"{Declaration.of(aggregate)}: members()"
    if not isinstance(query, Query) or query.entity is not source_of(aggregate):
        raise DeclarationError(f"{where} returns a query of {source_of(aggregate).__name__}")
    if query.index is not None:
        raise DeclarationError(
            f"{where} looks at the index {query.index.name}, which trails the table; the items of"
            " a group have to be one partition of the table itself"
        )
    if query.maximum is not None:
        raise DeclarationError(f"{where} returns the whole group; leave the limit out")
    return query


def _moves(
    aggregate: Ranked, change: Change[Any], table: Table
) -> dict[Key[Any], dict[str, tuple[Source, RankedEntry | None]]]:
    """Return what the change's item offers now, by group and field, if that has changed."""
    offers = [_offers(aggregate, item, table) for item in (change.old, change.new)]
    before, after = offers
    item = change.old if change.new is None else change.new
    if item is None:
        return {}
    source = source_of_entry(item.item_key)
    found: dict[Key[Any], dict[str, tuple[Source, RankedEntry | None]]] = {}
    for key in before | after:
        old, new = before.get(key, {}), after.get(key, {})
        moved = {
            name: (source, new.get(name)) for name in old | new if old.get(name) != new.get(name)
        }
        if moved:
            found[key] = moved
    return found


def _offers(
    aggregate: Ranked, item: Entity | None, table: Table
) -> dict[Key[Any], dict[str, RankedEntry]]:
    """Return what an item offers, by group and field.

    Raises:
        DeclarationError: `members` does not find it in the group that `group` returns.
    """
    groups = contributions(aggregate, item)
    if item is None or not groups:
        return {}
    ref = item_ref(table.schema, item.item_key.wire(table.schema))
    for key in groups:
        query = members_of(aggregate, key)
        if encode_key(query.pk, table.schema.pk_type) != dict([ref.pk]) or not in_bounds(
            query, ref
        ):
            raise DeclarationError(
                f"{Declaration.of(aggregate)}: members() does not find an item that group() puts"
                " into this group; the items of a group have to be in one partition of the table"
            )
    return dict.fromkeys(groups, entries_of(aggregate, item, table.schema))


async def _write(
    aggregate: Ranked,
    key: Key[Any],
    moves: dict[str, tuple[Source, RankedEntry | None]],
    table: Table,
) -> list[Effect]:
    """Return the effects that write one group's item."""
    extremes = extremes_of(aggregate)
    sight = await table.look(key)
    sight.check(ENTRIES_REVISION)
    before = {name: stored_entries(aggregate, name, sight.item) for name in moves}
    after = {
        name: extremes[name].ranking.step(before[name], *offered) for name, offered in moves.items()
    }
    unknown = [name for name, entries in after.items() if entries is None]
    if unknown:
        sight.check(REVISION)
        after |= await recompute(aggregate, key, table, unknown)
    attributes: dict[str, Any] = {}
    for name, entries in after.items():
        if entries is not None and entries != before[name]:
            attribute = attribute_names(aggregate)[name]
            attributes |= _stored(extremes[name], attribute, entries)
    return _entered(key, attributes)


async def recomputed(aggregate: Ranked, key: Key[Any], table: Table, at: datetime) -> list[Effect]:
    """Return the write of a group's entries from its items, IF no contribution comes meanwhile.

    `table` notes the reads that this depends on. Return nothing for a bucket that is over at `at`.
    """
    counted = placed_by(aggregate, [Accumulate(key, {REVISION: Decimal(1)})], "", "", at)
    if not counted:
        return []
    extremes, names = extremes_of(aggregate), attribute_names(aggregate)
    sight = await table.look(key)
    sight.check(REVISION)
    attributes: dict[str, Any] = {}
    for name, entries in (await recompute(aggregate, key, table, extremes)).items():
        attributes |= _stored(extremes[name], names[name], entries)
    return [*counted, *_entered(key, attributes)]


def _entered(key: Key[Any], attributes: dict[str, Any]) -> list[Effect]:
    if not attributes:
        return []
    return [Accumulate(key, {ENTRIES_REVISION: Decimal(1)}), Store(key, attributes)]


def _stored(extreme: Extreme, attribute: str, entries: list[RankedEntry]) -> dict[str, Any]:
    values: list[Any] = [entry.value for entry in entries]
    shown = {"L": values} if extreme.several else next(iter(values), None)
    return {attribute: shown, ranks_attribute(attribute): stored_ranks(entries)}


def _check_members(aggregate: Ranked) -> None:
    """Refuse a wrong `members` before a change calls it, as far as a made-up key can show."""
    declared, spec = Declaration.of(aggregate), spec_of(aggregate)
    if not has_members(aggregate):
        names = ", ".join(extremes_of(aggregate))
        raise DeclarationError(
            f"{declared}: {names} need members(): the query of the items of a group, which tells"
            " what comes next when the best one leaves"
        )
    fields = dict.fromkeys((*spec.pk.fields, *(spec.sk.fields if spec.sk else ())))
    try:
        inspect.signature(aggregate.members).bind(**fields)
    except TypeError as error:
        raise DeclarationError(
            f"{declared}: members() takes the fields of the group's key by name: {error}"
        ) from None
    try:
        key = aggregate.key(**{name: _made_up(aggregate, name) for name in fields})
        members_of(aggregate, key)
    except DeclarationError:
        raise
    except USER_ERRORS:  # a made-up value need not fit the user's types
        return


def _made_up(aggregate: Ranked, name: str) -> Any:
    """Return a value that most fields of keys accept: "1", which pydantic turns into numbers."""
    annotation = aggregate.model_fields[name].annotation
    return "2000-01-01" if "date" in getattr(annotation, "__name__", "") else "1"
