"""Keep other items that follow from an item in step with it, while both may be written.

    reconcile(key):  read the source, strongly consistent, and what is in its targets' places
                     one transaction: the source is as it was read,
                                      put each target   IF the place is free, or mine
                                      delete each stale IF it is mine
                     refused by the source: read again; place taken: a conflict, written down

The first pass has just read the source, and most places are free: it sends the transaction without
reading anything again, and reads only if that is refused. A place that is free when the transaction
is applied holds nothing newer than what the pass has read. Where a place was not free, the next
ones are looked at before.

Only what is read now is written, never the image of a change: so repeated and late changes, and a
process that froze, cannot install an old value. Stale targets are those that the change's old image
led to.

Until the switch sources are the truth and targets are copies (see `copies`); the switch makes the
target of each pair the truth, in one transaction. From then on a change of a target goes back to
its source, so that a rollback loses nothing; and a change of a source that its target does not have
is an error.

In: a key. Out: what was done, in a `Tally`. On failure: as `in_place`; in addition `conflict` where
another item is in a target's place, and what old code wrote after the switch; see `agreement`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.migrate.agreement import Agreement, Conflict, Late, is_ours
from streamkit.migrate.calls import DONE, Calls
from streamkit.migrate.errors import error_id
from streamkit.migrate.failing import FailedItems
from streamkit.migrate.in_place import ends_run
from streamkit.migrate.marks import mark_of, place_is
from streamkit.migrate.tallies import Tally
from streamkit.migrate.transform import Image, Rewrite, Target, Transform, plain, wire
from streamkit.migrate.writes import (
    Key,
    WireItem,
    as_left,
    check,
    delete,
    only_if,
    put,
    unchanged,
    update,
)
from streamkit.model.conditions import Attr, absent, as_it_was
from streamkit.model.copies import BASE, COPY, MOVED
from streamkit.progress.actions import Action, Verb, Wire, item_ref
from streamkit.progress.scan.places import place_text
from streamkit.progress.transaction import ACTIONS_MAX
from streamkit.progress.verdicts import Invalid

_TRIES = 20
_LOOKS = 50
"""After a place was not free, the places of so many items are looked at before they are taken to be
free again.
"""


@dataclass
class Pairs:
    """Keeps targets in step with their sources.

    `switched` says whether targets are the truth.
    """

    transform: Transform
    calls: Calls
    failed: FailedItems
    switched: bool = False
    agreement: Agreement = field(init=False)
    _looks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Prepare to look at what old code writes."""
        failed = self.failed
        self.agreement = Agreement(self.transform, self.calls, failed.book, failed.writer)

    @property
    def writer(self) -> str:
        """The migration's name in origins."""
        return self.failed.writer

    @property
    def id(self) -> str:
        """The migration's number."""
        return self.transform.migration.id

    async def forward(
        self,
        key: Key,
        tally: Tally,
        *,
        old: WireItem | None = None,
        seen: WireItem | None = None,
        switch: bool = False,
        carry: bool = True,
    ) -> None:
        """Bring the targets of a source in step with it.

        Args:
            key: the key of the source.
            tally: the counts to add to.
            seen: the source, if the first pass has just read it, strongly consistent.
            old: the source before its change; its targets may be stale.
            switch: switch the pair, too.
            carry: make targets that do not exist; after the switch, without the change that led to
                it, it is not known whether new code has deleted them.
        """
        switch = switch or (self.switched and self.transform.migration.moves)
        if seen is not None and self._looks:
            self._looks, seen = self._looks - 1, None

        async def attempt() -> Any:
            nonlocal seen
            read, seen = seen, None
            outcome = await self.attempt(key, old, seen=read, switch=switch, carry=carry)
            if read is not None and outcome is not DONE and outcome is not None:
                self._looks = _LOOKS
            return outcome

        await self.persist(key, tally, attempt)

    async def persist(self, key: Key, tally: Tally, attempt: Callable[[], Awaitable[Any]]) -> None:
        """Attempt something with an item until it is done; write down a final failure.

        Args:
            key: the key of the item.
            tally: the counts to add to.
            attempt: reads and writes; returns the outcome, None if there was nothing to do.
        """
        invalid = False
        for _ in range(_TRIES):
            try:
                outcome = await attempt()
            except Conflict as error:
                await self.failed.note(
                    error.key or key,
                    tally,
                    error.kind,
                    str(error),
                    name=error.name,
                    shown=error.shown,
                )
                return
            except Exception as error:
                if ends_run(error):
                    raise
                await self.failed.note(key, tally, "transform", error)
                return
            if outcome is None:
                tally.skipped += 1
                return
            if outcome is DONE:
                tally.changed += 1
                return
            if isinstance(outcome, Invalid) and invalid:
                await self.failed.note(key, tally, "invalid", outcome.text)
                return
            # DynamoDB does not say of a transaction with an invalid action whether the item had
            # changed.
            invalid = isinstance(outcome, Invalid)
            tally.conflicts += 1
        await self.failed.note(key, tally, "contended", f"it changed {_TRIES} times in a row")

    async def attempt(
        self,
        key: Key,
        old: WireItem | None,
        *,
        seen: WireItem | None = None,
        switch: bool,
        carry: bool = True,
    ) -> Any:
        """Send one transaction; return None if there is nothing to do.

        With `seen`, which is the source, the places of its targets are taken to be free.

        Raises:
            Conflict: the items that exist do not fit together.
        """
        source = seen or await self.calls.get(self.transform.schema.name, key)
        if source is not None and self.is_switched(source):
            return None
        was_switched = switch and old is not None and is_ours(self.transform.migration, old)
        if source is None and was_switched and old is not None:
            return await self.agreement.look_for(key, old)
        image = plain(source) if source is not None else {}
        rewrite = self.transform.of(image) if source is not None else Rewrite(frozenset())
        wanted = {place_text(target.key): target for target in rewrite.targets}
        there: dict[str, WireItem | None] = dict.fromkeys(wanted)
        for place, target in wanted.items() if seen is None else ():
            there[place] = await self.calls.get(self.transform.target.name, target.key)
        if switch and source is not None:
            known = any(self.agreement.comes_from(item, key) for item in there.values())
            ours = is_ours(self.transform.migration, source)
            if was_switched or known or ours or (wanted and not carry):
                return await self.agreement.settle(key, source, rewrite, there)
        stale = [t for t in self._stale(old) if place_text(t.key) not in wanted]
        mark = mark_of(self.transform.migration, self.transform.schema, key)
        actions = [
            *[
                action
                for place, target in wanted.items()
                for action in self._put(target, there[place], mark, key, switch=switch)
            ],
            *[a for t in stale for a in await self._remove(t, mark)],
        ]
        turns = switch and source is not None and bool(wanted)
        if not actions and not turns:
            return None
        if len(actions) >= ACTIONS_MAX:
            raise Conflict(
                f"it becomes more than {ACTIONS_MAX - 1} items, too many to write at once"
            )
        guard = self._guard(key, image if source is not None else None, rewrite, turns=turns)
        return await self.calls.transact([guard, *actions])

    def is_switched(self, source: WireItem) -> bool:
        """Return whether a source is a copy of which its target has taken over everything.

        Copies of another migration do not matter here, nor do copies of this one that are targets
        and look like sources; they have no digest.
        """
        if BASE in source:
            return self.agreement.holds(source)
        return COPY in source or source.get(MOVED) == {"S": self.id}

    def _stale(self, old: WireItem | None) -> Sequence[Target]:
        if old is None or not self.transform.matches(old) or COPY in old:
            return ()
        if is_ours(self.transform.migration, old):
            return ()
        try:
            return self.transform.of(plain(old)).targets
        except Exception:  # noqa: BLE001 - then it never had any targets
            return ()

    def _guard(self, key: Key, image: Image | None, rewrite: Rewrite, *, turns: bool) -> Action:
        """Return the action that checks the source against what was read."""
        schema = self.transform.schema
        if image is None:
            return check(schema, key, None)
        # A source that becomes a copy is checked completely: old code may have changed any
        # attribute.
        entire = turns and self.transform.migration.mode == "rekey"
        touched = rewrite.reads | rewrite.removes | rewrite.sets.keys() if turns else rewrite.reads
        held = unchanged(schema, image, frozenset(image if entire else touched))
        held.append(Attr(COPY).not_exists())
        if MOVED not in rewrite.reads and not entire:  # it was not switched since
            held += as_it_was((MOVED,), image)
        if not turns:
            return Action(item_ref(schema, key), Verb.CHECK, guards=only_if(held))
        sets = self.agreement.when_switched(wire(image), rewrite)
        return update(schema, key, held, self.writer, sets=sets)

    def _put(
        self,
        target: Target,
        there: WireItem | None,
        mark: tuple[str, Wire],
        source: Key,
        *,
        switch: bool,
    ) -> list[Action]:
        """Return the actions that put a target, none if it is right.

        Raises:
            Conflict: another item is in its place.
            Late: its pair was switched since.
        """
        schema, (name, value) = self.transform.target, mark
        place = place_is(self.transform.migration, mark, target, there)
        if place == "late":
            raise Late("it was written at its old place after the switch")
        if place == "taken":
            raise Conflict(f"another item is where it belongs, {error_id(target.key)}")
        turns = switch and there is not None and there.get(COPY) == value
        if place == "right" and not turns:
            return []
        after = self.agreement.origin(source) if switch and name == COPY else {name: value}
        held = [absent] if there is None else as_left(there, name)
        return [put(schema, {**target.item, **after}, held, self.writer)]

    async def _remove(self, target: Target, mark: tuple[str, Wire]) -> list[Action]:
        schema, (name, value) = self.transform.target, mark
        there = await self.calls.get(schema.name, target.key)
        if there is None or there.get(name) != value:
            return []
        return [delete(schema, target.key, as_left(there, name))]
