"""Follow pairs after the switch, and roll them back.

    backward      a target changed: its source follows, so that a rollback loses nothing
    switch_back   rollback after the switch: the source is the truth again, its targets are copies
    drop          rollback before the switch: copies are deleted

Each is one conditional write, or one transaction that checks what was read. In: an item as it was
read. Out: what was done, in a `Tally`. On failure: what old code wrote is an error; see
`agreement`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.core.matching import Matcher
from streamkit.core.querying import query_request
from streamkit.migrate.agreement import (
    Conflict,
    base_of,
    digest_of,
    is_ours,
    key_of,
)
from streamkit.migrate.calls import DONE, Outcome
from streamkit.migrate.errors import error_id
from streamkit.migrate.in_place import delete_marked
from streamkit.migrate.pairs import Pairs
from streamkit.migrate.reverse import Reverse
from streamkit.migrate.tallies import Tally
from streamkit.migrate.transform import Rewrite, Target, alike, plain, visible, wire
from streamkit.migrate.writes import (
    Key,
    WireItem,
    as_left,
    check,
    delete,
    put,
    rewritten,
    whole,
)
from streamkit.model.copies import BASE, COPY, FROM, MOVED, SOURCE
from streamkit.progress.actions import Action, Verb, Wire
from streamkit.progress.verdicts import RefusedCommit

_PARTS_MAX = 90
"""Parts of one source that a transaction for a change of one of them can check."""


@dataclass
class Switched:
    """The rollback and the end of the pairs of one migration."""

    pairs: Pairs

    def __post_init__(self) -> None:
        """Prepare to read targets."""
        transform = self.pairs.transform
        self._target = transform.migration.target
        self._agreement = self.pairs.agreement
        self._reverse = Reverse(transform)

    # -- backward ------------------------------------------------------------------------------

    async def backward(
        self, key: Key, tally: Tally, *, old: WireItem | None = None, gone: bool = False
    ) -> None:
        """Let the source follow a target that changed.

        Args:
            key: the key of the target.
            tally: the counts to add to.
            old: the target before its change.
            gone: it was deleted, though it may exist again.
        """
        if self.pairs.transform.migration.reverse is None:
            return
        if self.pairs.transform.migration.mode == "split":
            await self.pairs.persist(key, tally, lambda: self._part(key, old))
        else:
            await self.pairs.persist(key, tally, lambda: self._moved(key, old, gone=gone))

    async def _moved(self, key: Key, old: WireItem | None, *, gone: bool = False) -> Any:
        pairs, schema = self.pairs, self.pairs.transform.schema
        target = await pairs.calls.get(pairs.transform.target.name, key)
        if target is not None and COPY in target:
            return None  # its pair is not switched yet, and follows the source
        shown = target or old
        if shown is None or COPY in shown:
            return None
        item = self._reverse.source(shown)
        source_key = {name: item[name] for name in schema.key_attributes}
        if pairs.transform.target.name == schema.name and source_key == dict(key):
            return None  # keys of both shapes look alike, and this is a source
        source = await pairs.calls.get(schema.name, source_key)
        if source is None and (gone or target is None):
            await self._agreement.both_are_gone(source_key)
            old = None  # what exists now was put after both were gone
        if target is None:
            return await self._moved_away(key, source_key, source)
        if source is None and self._was_paired(source_key, target, old):
            if not await self._agreement.is_as_read(key, target):
                return RefusedCommit()
            await self._agreement.report_deleted(source_key, key)
        elif source is None and await self._agreement.is_open(source_key):
            return None  # the item was put again since its old item was deleted, and that is known
        same = source is not None and alike(source, item)
        if source is not None and not same and self._agreement.is_written(source):
            await self._agreement.report_late(source_key, source)
        stamped = self._agreement.stamped(source_key, key, target)
        if source is not None and same and self._agreement.holds(source):
            return await self._stamp(source_key, source, stamped)
        copy = item | self._agreement.of_copy(item, key)
        follows = put(schema, copy, whole(schema, source), pairs.writer)
        return await pairs.calls.transact([stamped, follows])

    async def _moved_away(self, key: Key, source_key: Key, source: WireItem | None) -> Any:
        """Delete the source of a target that was deleted."""
        pairs, schema = self.pairs, self.pairs.transform.schema
        if source is None or not is_ours(pairs.transform.migration, source):
            return None
        if self._agreement.is_written(source):
            await self._agreement.report_late(source_key, source)
        gone = check(pairs.transform.target, key, None)
        follows = delete(schema, source_key, whole(schema, source))
        return await pairs.calls.transact([gone, follows])

    def _was_paired(self, source: Key, target: WireItem, old: WireItem | None) -> bool:
        """Return whether a target had a source, even if it was put again meanwhile."""
        return any(self._agreement.comes_from(one, source) for one in (target, old))

    async def _part(self, key: Key, old: WireItem | None) -> Any:
        pairs, migration = self.pairs, self.pairs.transform.migration
        schema = pairs.transform.schema
        target = await pairs.calls.get(pairs.transform.target.name, key)
        shown = target or old
        if shown is None or COPY in shown or migration.source is None:
            return None
        source_key = migration.source(self._reverse.entity(shown))
        if source_key is None:
            return None
        source = await pairs.calls.get(schema.name, source_key.wire(schema))
        if source is None:
            return None
        if MOVED not in source and (target is None or not pairs.switched):
            return None  # its parts are gone because it is whole again, whatever this process knows
        wire_key = source_key.wire(schema)
        paired = MOVED in source or self._was_paired(wire_key, shown, old)
        return await self._give_back(wire_key, source, key, target, paired=paired)

    async def _give_back(
        self, source_key: Key, source: WireItem, key: Key, target: WireItem | None, *, paired: bool
    ) -> Any:
        """Bring a source in step with its parts, one of which has changed."""
        pairs, schema = self.pairs, self.pairs.transform.schema
        parts = await self._parts(source)
        rewrite = self._whole_again(source, parts)
        if rewrite.changes_item and paired and self._agreement.is_written(source):
            await self._agreement.report_late(source_key, source)
        elif rewrite.changes_item and not paired and pairs.transform.of(plain(source)).targets:
            raise Conflict("it has parts of its own, and what they are moved to is there already")
        if not rewrite.changes_item and not paired:
            return None
        held = check(pairs.transform.target, key, None)
        if target is not None:
            held = self._agreement.stamped(source_key, key, target)
        if self._agreement.holds(source) and not rewrite.changes_item:
            return await self._stamp(source_key, source, held)
        if len(parts) > _PARTS_MAX:
            raise Conflict(f"it has more than {_PARTS_MAX} parts, too many to check at once")
        others = [(key_of(schema, part), part) for part in parts]
        checks = [held, *[check(schema, one, part) for one, part in others if one != dict(key)]]
        base = base_of(pairs.transform, _after(source, rewrite))
        moved = {MOVED: {"S": pairs.id}, BASE: {"S": base}}
        entire = Rewrite(frozenset(source), rewrite.sets, rewrite.removes)
        change = rewritten(schema, source_key, plain(source), entire, pairs.writer, beside=moved)
        if MOVED in source:
            return await pairs.calls.transact([change, *checks])
        # It never was whole, or its parts are moved out for good, and this process is late.
        holds = pairs.failed.book.phase_holds(pairs.failed.phase)
        outcome = await pairs.calls.transact([holds, change, *checks])
        return None if isinstance(outcome, RefusedCommit) and 0 in outcome.items else outcome

    async def _stamp(self, key: Key, source: WireItem, held: Action) -> Any:
        """Write a source's key into its target, if it is not there, as after another put."""
        if held.verb is Verb.CHECK:
            return None
        return await self.pairs.calls.transact(
            [check(self.pairs.transform.schema, key, source), held]
        )

    def _whole_again(self, source: WireItem, parts: Sequence[WireItem]) -> Rewrite:
        """Return what the parts of a source make of it."""
        transform = self.pairs.transform
        reverse = transform.migration.reverse
        assert reverse is not None  # noqa: S101 - only pairs with `reverse` come here
        result = reverse(transform.entity(source), [self._reverse.entity(part) for part in parts])
        return transform.interpret(result, plain(visible(source)), frozenset())

    async def _parts(self, source: WireItem) -> list[dict[str, Wire]]:
        transform = self.pairs.transform
        assert transform.migration.collect is not None  # noqa: S101 - checked at declaration
        query = transform.migration.collect(transform.entity(source))
        items = await self.pairs.calls.query(**query_request(query, transform.target))
        return [item for item in items if COPY not in item]

    # -- passes --------------------------------------------------------------------------------

    async def switch_back(self, source: WireItem, tally: Tally) -> None:
        """Make a switched source the truth again, and its targets copies."""
        if self.pairs.transform.matches(source):
            key = key_of(self.pairs.transform.schema, source)
            await self.pairs.persist(key, tally, lambda: self._unturn(key))

    async def _unturn(self, key: Key) -> Any:
        pairs, transform = self.pairs, self.pairs.transform
        source = await pairs.calls.get(transform.schema.name, key)
        if source is None or (COPY in source and not self._is_switched(source)):
            return None
        image = plain(source)
        targets = transform.of(image).targets
        if not self._is_switched(source):
            return await self._switch_back_late(key, source, targets)
        if transform.migration.mode == "rekey" and not targets:
            if self._target and Matcher(self._target, transform.target).matches(source):
                return None  # it is a copy that looks like a source, and was never switched
            raise Conflict("the function no longer says where it was moved")
        actions = []
        for target in targets:
            there = await pairs.calls.get(transform.target.name, target.key)
            if there is None:
                continue
            if not await self._has_followed(source, there):
                split = transform.migration.mode == "split"
                follow = self._part if split else self._moved
                await follow(target.key, None)  # it raises what old code wrote there
                return RefusedCommit()
            actions.append(self._hiding(key, target.key, there))
        if transform.migration.mode == "rekey" and not actions:
            return await self._follow_removal(source, key, targets)
        marks = frozenset({COPY, MOVED, BASE} & source.keys())
        bare = Rewrite(frozenset(), {}, marks)
        change = rewritten(transform.schema, key, image, bare, pairs.writer)
        return await pairs.calls.transact([change, *actions])

    async def _switch_back_late(self, key: Key, source: WireItem, targets: Sequence[Target]) -> Any:
        """Hide the targets of a source that was put again at its old key after the switch."""
        pairs, schema = self.pairs, self.pairs.transform.target
        actions = [check(pairs.transform.schema, key, source)]
        for target in targets:
            there = await pairs.calls.get(schema.name, target.key)
            if there is None or not self._agreement.comes_from(there, key):
                continue
            if not alike(there, target.item):
                await self._agreement.report_late(key, source)
            actions.append(self._hiding(key, target.key, there))
        return await pairs.calls.transact(actions) if len(actions) > 1 else None

    async def _follow_removal(
        self, source: WireItem, key: Key, targets: Sequence[Target]
    ) -> Outcome:
        """Delete a source whose target was deleted, perhaps while no process followed."""
        if self._agreement.is_written(source):
            await self._agreement.report_late(key, source)
        schema = self.pairs.transform.schema
        gone = delete(schema, key, whole(schema, source))
        absent = [check(self.pairs.transform.target, t.key, None) for t in targets]
        return await self.pairs.calls.transact([gone, *absent])

    def _hiding(self, source: Key, key: Key, item: WireItem) -> Action:
        """Return the action that makes a target a copy; handlers never see copies deleted."""
        mine = {COPY: {"S": f"{self.pairs.id}:{error_id(source)}"}}
        marks = frozenset({FROM, SOURCE} & item.keys())
        entire = Rewrite(frozenset(item), {}, marks)
        target, writer = self.pairs.transform.target, self.pairs.writer
        return rewritten(target, key, plain(item), entire, writer, beside=mine)

    async def _has_followed(self, source: WireItem, target: WireItem) -> bool:
        """Return whether a source has followed its target, whatever old code wrote to it since."""
        migration, base = self.pairs.transform.migration, source.get(BASE)
        if migration.reverse is None:
            return True
        if migration.mode == "rekey":
            before = self._reverse.source(target)
            return alike(source, before) or base == {"S": digest_of(before)}
        rewrite = self._whole_again(source, await self._parts(source))
        after = _after(source, rewrite)
        return not rewrite.changes_item or base == {"S": base_of(self.pairs.transform, after)}

    async def drop(self, item: WireItem, tally: Tally) -> None:
        """Delete a copy, or a derived item, that this migration has made."""
        name = COPY if self.pairs.transform.migration.moves else FROM
        if not self._is_mine(item, name):
            return
        schema, calls = self.pairs.transform.target, self.pairs.calls
        key, (whose, mark) = key_of(schema, item), as_left(item, name)
        if name == COPY:
            outcome = await calls.write(delete(schema, key, [whose, mark]))
        else:  # handlers can see it: it says that a migration deletes it
            writer = self.pairs.writer
            outcome = await delete_marked(calls, schema, key, [whose], writer, first=[mark])
        tally.changed += outcome is DONE

    def _is_switched(self, source: WireItem) -> bool:
        return is_ours(self.pairs.transform.migration, source)

    def _is_mine(self, item: WireItem, name: str) -> bool:
        return str(item.get(name, {}).get("S", "")).startswith(f"{self.pairs.id}:")


def _after(source: WireItem, rewrite: Rewrite) -> dict[str, Wire]:
    """Return an item as a rewrite leaves it."""
    kept = {name: value for name, value in source.items() if name not in rewrite.removes}
    return kept | wire(rewrite.sets)
