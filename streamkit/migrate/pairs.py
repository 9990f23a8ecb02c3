"""Pairs: other items that follow from an item, while both may be written.

    reconcile(key):  read the source, strongly consistent, and what is where its targets belong
                     one transaction: the source is as it was read,
                                      put each target   IF the place is free, or mine
                                      delete each stale IF it is mine
                     refused by the source: read again; place taken: a conflict, written down

The image of a change is never written, only what is read now, so that repeated and late changes,
and a process that froze, cannot install an old value. Stale targets are those that the change's old
image led to.

Until the switch sources are the truth and targets are copies (see `copies`); the switch turns each
pair around, in one transaction. From then on a change of a target goes back to its source, so that
a rollback loses nothing; and a change of a source that its target does not have is an error.

In: a key. Out: what was done, in a `Tally`. On failure: as `in_place`; in addition `conflict` where
another item is in a target's place, and what old code wrote after the switch; see `agreement`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamkit.actions import Wire
from streamkit.clock import Clock
from streamkit.migrate.agreement import (
    Agreement,
    Conflict,
    Key,
    Late,
    WireItem,
    is_ours,
)
from streamkit.migrate.calls import DONE, Calls, Terms, unchanged
from streamkit.migrate.errors import ErrorBook, error_id
from streamkit.migrate.in_place import Tally, describe, ends_run, mark_text
from streamkit.migrate.marks import mark_of, place_is
from streamkit.migrate.segments import place_text
from streamkit.migrate.transform import Image, Rewrite, Target, Transform, plain, wire
from streamkit.model.copies import BASE, COPY, MOVED
from streamkit.model.origin import MARK
from streamkit.observe.logger import get_logger
from streamkit.processing.transaction import ACTIONS_MAX
from streamkit.processing.verdicts import Invalid

log = get_logger("streamkit.migrate")

_TRIES = 20


@dataclass
class Pairs:
    """Keeps targets in step with their sources.

    `switched` says which side is the truth, `phase` the phase in which it is. `writer` is the
    migration's name in marks.
    """

    transform: Transform
    calls: Calls
    book: ErrorBook
    clock: Clock
    writer: str
    switched: bool = False
    phase: str = ""
    agreement: Agreement = field(init=False)

    def __post_init__(self) -> None:
        """Prepare to look at what old code writes."""
        self.agreement = Agreement(self.transform, self.calls, self.book, self.writer)

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
        switch: bool = False,
        carry: bool = True,
    ) -> None:
        """Bring the targets of a source in step with it.

        Args:
            key: of the source.
            tally: is added to.
            old: what the source was before, whose targets may be stale.
            switch: turn the pair around, too.
            carry: make targets that are not there; without the change that led to it nobody knows
                after the switch whether new code has deleted them.
        """
        switch = switch or (self.switched and self.transform.migration.moves)
        attempt = partial(self.attempt, key, old, switch=switch, carry=carry)
        await self.persist(key, tally, attempt)

    async def persist(self, key: Key, tally: Tally, attempt: Callable[[], Awaitable[Any]]) -> None:
        """Attempt something with an item until it is done; what fails for good is written down.

        Args:
            key: of the item.
            tally: is added to.
            attempt: reads and writes; returns what came of it, None if there was nothing to do.
        """
        invalid = False
        for _ in range(_TRIES):
            try:
                outcome = await attempt()
            except Conflict as error:
                await self.fail(
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
                await self.fail(key, tally, "transform", describe(error))
                return
            if outcome is None:
                tally.skipped += 1
                return
            if outcome is DONE:
                tally.changed += 1
                return
            if isinstance(outcome, Invalid) and invalid:
                await self.fail(key, tally, "invalid", outcome.text)
                return
            # Of a transaction with an invalid action nobody says whether the item had changed.
            invalid = isinstance(outcome, Invalid)
            tally.conflicts += 1
        await self.fail(key, tally, "contended", f"it changed {_TRIES} times in a row")

    async def attempt(
        self, key: Key, old: WireItem | None, *, switch: bool, carry: bool = True
    ) -> Any:
        """Send one transaction; None if there is nothing to do.

        Raises:
            Conflict: what there is does not fit together.
        """
        source = await self.calls.get(self.transform.schema.name, key)
        if source is not None and self.is_turned(source):
            return None
        turned = switch and old is not None and is_ours(self.transform.migration, old)
        if source is None and turned and old is not None:
            return await self.agreement.look_for(key, old)
        image = plain(source) if source is not None else {}
        rewrite = self.transform.of(image) if source is not None else Rewrite(frozenset())
        wanted = {place_text(target.key): target for target in rewrite.targets}
        there = {place: await self._there(target) for place, target in wanted.items()}
        if switch and source is not None:
            known = any(self.agreement.comes_from(item, key) for item in there.values())
            ours = is_ours(self.transform.migration, source)
            if turned or known or ours or (wanted and not carry):
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

    def is_turned(self, source: WireItem) -> bool:
        """Say whether a source is a copy that holds nothing but what its target has taken in.

        Copies of another migration are nobody's business here, nor those of this one that are
        targets, and look like sources; they have no digest.
        """
        if BASE in source:
            return self.agreement.holds(source)
        return COPY in source or source.get(MOVED) == {"S": self.id}

    async def _there(self, target: Target) -> WireItem | None:
        return await self.calls.get(self.transform.target.name, target.key)

    def _stale(self, old: WireItem | None) -> Sequence[Target]:
        if old is None or not self.transform.matches(old) or COPY in old:
            return ()
        if is_ours(self.transform.migration, old):
            return ()
        try:
            return self.transform.of(plain(old)).targets
        except Exception:  # noqa: BLE001 - then there never were any of it
            return ()

    def _guard(
        self, key: Key, image: Image | None, rewrite: Rewrite, *, turns: bool
    ) -> dict[str, Any]:
        """Return the action that holds the source to what was read."""
        schema, terms = self.transform.schema, Terms()
        where = {"TableName": schema.name, "Key": dict(key)}
        if image is None:
            text = f"attribute_not_exists({terms.name(schema.pk)})"
            return {"ConditionCheck": {**where, **terms.request(ConditionExpression=text)}}
        # A source that becomes a copy must be whole: an old writer may have touched any attribute.
        entire = turns and self.transform.migration.mode == "rekey"
        held = rewrite.reads | rewrite.removes | rewrite.sets.keys() if turns else rewrite.reads
        condition = unchanged(terms, schema, image, frozenset(image if entire else held))
        condition += f" AND attribute_not_exists({terms.name(COPY)})"
        if MOVED not in rewrite.reads and not entire:  # nobody has turned it since
            moved = {"S": image[MOVED]} if MOVED in image else None
            condition += f" AND {terms.equals(MOVED, moved)}"
        if not turns:
            return {"ConditionCheck": {**where, **terms.request(ConditionExpression=condition)}}
        sets = self.agreement.turned(wire(image), rewrite)
        sets[MARK] = {"S": mark_text(self.writer)}
        update = "SET " + ", ".join(
            f"{terms.name(name)} = {terms.value(value)}" for name, value in sets.items()
        )
        request = terms.request(UpdateExpression=update, ConditionExpression=condition)
        return {"Update": {**where, **request}}

    def _put(
        self,
        target: Target,
        there: WireItem | None,
        mark: tuple[str, Wire],
        source: Key,
        *,
        switch: bool,
    ) -> list[dict[str, Any]]:
        """Return what puts a target, nothing if it is right.

        Raises:
            Conflict: another item is in its place.
            Late: its pair was turned since.
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
        terms = Terms()
        if there is None:
            condition = f"attribute_not_exists({terms.name(schema.pk)})"
        else:
            condition = as_read(terms, there, name)
        item = {**target.item, **after, MARK: {"S": mark_text(self.writer)}}
        body = {"TableName": schema.name, "Item": item}
        return [{"Put": {**body, **terms.request(ConditionExpression=condition)}}]

    async def _remove(self, target: Target, mark: tuple[str, Wire]) -> list[dict[str, Any]]:
        schema, (name, value) = self.transform.target, mark
        there = await self.calls.get(schema.name, target.key)
        if there is None or there.get(name) != value:
            return []
        terms = Terms()
        condition = as_read(terms, there, name)
        body = {"TableName": schema.name, "Key": dict(target.key)}
        return [{"Delete": {**body, **terms.request(ConditionExpression=condition)}}]

    async def fail(
        self, key: Key, tally: Tally, kind: str, text: str, *, name: str = "", shown: str = ""
    ) -> None:
        """Write down that an item could not be brought into the new shape."""
        tally.errors += 1
        name = name or error_id(key)
        known: dict[str, Any] = {"migration": self.writer, "kind": kind, "item": name}
        log.often("migration.item_failed", level="warning", by=kind, **known)
        at = self.clock.time()
        tally.waived += await self.book.add(key, kind, text, at, name=name, shown=shown)


def as_read(terms: Terms, item: WireItem, name: str) -> str:
    """Return the condition that an item is as it was left by whoever wrote it, and whose it is.

    A mark is different with each write, so a process that is late is refused, whatever happened.
    """
    return f"{terms.equals(name, item[name])} AND {terms.equals(MARK, item.get(MARK))}"
