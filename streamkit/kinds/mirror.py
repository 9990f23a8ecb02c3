"""Declare mirrors: copies of a source's fields that follow every change of the source.

    @app.mirror(
        copies=lambda user: Membership.query(user_id=user.user_id),
        source=lambda copy: User.key(user_id=copy.user_id),
    )
    def copy_name(user: User, copy: Membership) -> Set[Membership]:
        return Set(copy.item_key, user_name=user.name)

A mirror becomes two handlers. A change of the source updates every copy, as a fan-out does; a copy
that appears or changes updates itself. Each reads copy and source, strongly consistent, and writes
IF both are still as read: so two renames, copies made meanwhile and copies that move to another
source all end with the source's latest state. If the copies are found through an index, which lags,
each copy also enters itself in a directory, in the same transaction that updates it.

A value made of two sources takes two mirrors, one for each, whose functions receive one source and
read the other; what they `get` is checked as well, so that the value is that of both:

    @app.mirror(copies=boxes_of_user, source=user_of_box)
    async def by_user(user: User, box: Box, table: Table) -> Set[Box] | None:
        shelf = await table.get(Shelf.key(shelf=box.shelf))
        return shelf and Set(box.item_key, label=f"{user.name}/{shelf.label}")

    @app.mirror(copies=boxes_on_shelf, source=shelf_of_box)
    async def by_shelf(shelf: Shelf, box: Box, table: Table) -> Set[Box] | None: ...
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from streamkit.changes import Change, Kind
from streamkit.core.handler import AUDIENCE, Broadcast, Handler, Policy
from streamkit.core.writes import ANY_KIND
from streamkit.effects import Add, AddToSet, Delete, Effect, Put, RemoveFromSet, Set, as_effects
from streamkit.entity import Entity, Key, Query
from streamkit.errors import DeclarationError, PoisonChange, RetryableError
from streamkit.kinds.copy_directory import CopyEntry, directory_of, entry_of
from streamkit.kinds.fan_out.audience import AudiencePage, AudienceReader, Recipient, as_sources
from streamkit.kinds.fan_out.fan_out import Inline
from streamkit.kinds.mirror_functions import checked_copies, checked_source
from streamkit.kinds.on import check_when, names_of, needs_of
from streamkit.model.declaration import Declaration
from streamkit.model.queries import Scan
from streamkit.model.when import When
from streamkit.progress.actions import Wire
from streamkit.table import Table

Gone = Literal["keep", "delete"]
"""What happens to the copies of a source that does not exist, or not any more."""

_ALIVE = frozenset({Kind.INSERTED, Kind.MODIFIED})


@dataclass
class FoundCopy:
    """A copy that is to be updated: its key, and the item as an audience's page had it."""

    key: Key[Any]
    stored: Mapping[str, Wire] | None = None

    async def read(self, table: Table) -> Entity | None:
        """Return the copy; one that has to be read again is read from the table."""
        stored, self.stored = self.stored, None  # if the commit refuses it, it has changed since
        return await table.get(self.key) if stored is None else table.found(self.key, stored)


@dataclass(frozen=True)
class Mirror:
    """What a mirror declares."""

    name: str
    function: Callable[..., Any]
    copies: Callable[[Any], Any]
    source: Callable[[Any], Key[Any] | None]
    source_entity: type[Entity]
    copy_entity: type[Entity]
    gone: Gone
    needs: tuple[str, ...]

    # -- driven by the source ------------------------------------------------------------------

    def audience(self, change: Change[Any]) -> Sequence[Query[Any] | Scan[Any]]:
        """Return where the copies of a source are; the directory first, if an index lags."""
        item: Any = change.old if change.new is None else change.new
        sources = as_sources(self.copies(item))
        if any(source.index is not None for source in sources):
            return [directory_of(self.name, item.item_key), *sources]
        return sources

    async def serve(
        self,
        change: Change[Any],  # noqa: ARG002 - the shape of what serves recipients
        to: Any,
        tools: dict[str, Any],
    ) -> tuple[Effect, ...]:
        """Return the effects that update one copy of the source that changed."""
        return await self._mend(to, tools)

    async def page(
        self, change: Change[Any], token: str | None, table: Table, limit: int
    ) -> AudiencePage:
        """Read the keys of copies after a token, as an audience; each has the name of its copy."""
        reader = AudienceReader(self.audience, self.copy_entity, frozenset({self.copy_entity}))
        page = await reader.page(change, token, table, limit)
        found = [self._of_copy(one) for one in page.recipients]
        behind = (one.to for one in found if one.stored is None)  # found through an index
        read = await table.stored(behind)
        copies = [(one, FoundCopy(one.to, one.stored or read.get(one.to))) for one in found]
        return replace(page, recipients=[replace(one, to=copy) for one, copy in copies])

    def _of_copy(self, found: Recipient) -> Recipient:
        if not isinstance(found.to, CopyEntry):
            return found
        key = Key(self.copy_entity, found.to.pk, found.to.sk)
        return replace(found, to=key, name=json.dumps([key.pk, key.sk]), stored=None)

    async def one(self, name: str, table: Table) -> FoundCopy:  # noqa: ARG002 - the shape
        """Return a copy, by the name of a recipient."""
        return FoundCopy(Key(self.copy_entity, *json.loads(name)))

    # -- driven by a copy ----------------------------------------------------------------------

    async def follow(self, change: Change[Any], **tools: Any) -> tuple[Effect, ...]:
        """Return what updates the copy that changed, and enters it in its source's directory."""
        entries = await self._entries(change, tools[AUDIENCE])
        if change.new is None or not (entries or await self._differs(change.new, tools)):
            return tuple(entries)
        copied = FoundCopy(change.new.item_key)
        return (*entries, *await self._mend(copied, tools, keep=bool(entries)))

    async def _differs(self, copied: Entity, tools: dict[str, Any]) -> bool:
        """Return whether a copy has to be read again, because its change left it unlike its source.

        Nearly always it was this mirror that wrote it. If it was written again, that is a change of
        its own; so is a write to the source after it was read here.
        """
        source_key = self.source(copied)
        if self.needs or source_key is None:
            return source_key is not None
        table: Table = tools[AUDIENCE]
        noted = len(table.reads_noted)
        source = await table.get(source_key, once=True)
        table.forget_reads(noted)
        return source is None or bool(await self._changes(source, copied, {}))

    async def _entries(self, change: Change[Any], table: Table) -> list[Effect]:
        """Return the effects of a copy's change on the directories of its sources."""
        old, new = (None if c is None else self.source(c) for c in (change.old, change.new))
        effects: list[Effect] = []
        if old == new:
            return effects
        if old is not None and change.old is not None and await self._has_directory(old, table):
            effects.append(Delete(entry_of(self.name, old, change.old.item_key).item_key))
        if new is not None and change.new is not None and await self._has_directory(new, table):
            effects.append(Put(entry_of(self.name, new, change.new.item_key)))
        return effects

    async def _has_directory(self, source: Key[Any], table: Table) -> bool:
        """Return whether a source's copies are found through an index, or may be."""
        item = await table.get(source, check=False, once=True)
        return item is None or any(s.index is not None for s in as_sources(self.copies(item)))

    # -- both ----------------------------------------------------------------------------------

    async def _mend(
        self, found: FoundCopy, tools: dict[str, Any], *, keep: bool = False
    ) -> tuple[Effect, ...]:
        """Return what makes a copy like its source, IF both stay as they are read here.

        If there is nothing to write, the reads are not checked unless `keep` says so: a later write
        to the copy or the source is a change of its own.
        """
        table: Table = tools[AUDIENCE]
        noted = len(table.reads_noted)  # because of runs for other copies of the same audience
        arguments = {name: tools[name] for name in self.needs}
        copied = await found.read(table)
        source_key = None if copied is None else self.source(copied)
        effects: tuple[Effect, ...] = ()
        if copied is not None and source_key is not None:
            source = await table.get(source_key, once=True)
            if source is not None:
                effects = await self._changes(source, copied, arguments)
            elif self.gone == "delete":
                effects = (Delete(found.key),)
        if not effects and not keep:
            table.forget_reads(noted)
        return effects

    async def _changes(
        self, source: Entity, copied: Entity, arguments: dict[str, Any]
    ) -> tuple[Effect, ...]:
        """Return the effects of the user's function that change something.

        Raises:
            PoisonChange: it adds to the copy, or applied twice it changes the copy again, so that
                it would never end.
            RetryableError: the same, of a function that reads other items, too.
        """
        effects = await self._call(source, copied, arguments)
        changes = tuple(effect for effect in effects if _changes(effect, copied))
        for effect in changes:
            if isinstance(effect, Add | AddToSet | RemoveFromSet):
                raise PoisonChange(f"{self.name} adds to its copy; a mirror sets")
            if isinstance(effect, Set) and effect.key == copied.item_key:
                after = copied.model_copy(update=effect.fields)
                again = await self._call(source, after, arguments)
                if any(_changes(other, after) for other in again):
                    text = (
                        f"{self.name} changes its own result again: what it sets must follow from"
                        " the source, and be the same the next time"
                    )
                    # Other items that the function reads may have changed between the two calls.
                    raise RetryableError(text) if arguments else PoisonChange(text)
        return changes

    async def _call(
        self, source: Entity, copied: Entity, arguments: dict[str, Any]
    ) -> tuple[Effect, ...]:
        result: Any = self.function(source, copied, **arguments)
        if inspect.isawaitable(result):
            result = await result
        return as_effects(result)


def mirror_handlers(mirror: Mirror, when: When | None, policy: Policy) -> tuple[Handler, Handler]:
    """Make the two handlers of a mirror: for its source's changes, and for its copies'."""
    declared = Declaration.of(mirror.function)
    hints = declared.hints(mirror.function)
    check_when(when, mirror.source_entity, declared)
    parameters = list(inspect.signature(mirror.function).parameters.values())[2:]
    needs = {**needs_of(parameters, hints, declared), AUDIENCE: Table}
    source_side = Handler(
        name=mirror.name,
        entity=mirror.source_entity,
        kinds=frozenset(Kind) if mirror.gone == "delete" else _ALIVE,
        run=Inline(mirror.page, mirror.serve).run,
        declared=declared,
        is_async=True,
        when=when,
        needs=needs,
        policy=policy,
        writes=frozenset({mirror.copy_entity, CopyEntry}),
        causes={mirror.copy_entity: ANY_KIND},
        converges=True,
        names=names_of(hints),
        broadcast=Broadcast(mirror.page, mirror.one, mirror.serve),
    )
    copy_side = replace(
        source_side,
        name=f"{mirror.name}.copies",
        entity=mirror.copy_entity,
        kinds=frozenset(Kind),
        run=mirror.follow,
        when=None,
        broadcast=None,
    )
    return source_side, copy_side


def read_mirror(
    function: Callable[..., Any],
    *,
    name: str | None,
    copies: Callable[[Any], Any],
    source: Callable[[Any], Key[Any] | None],
    gone: Gone,
) -> Mirror:
    """Read what a mirror's function declares.

    Raises:
        DeclarationError: it does not take a source and a copy, both entities.
    """
    declared = Declaration.of(function)
    parameters = list(inspect.signature(function).parameters.values())
    hints = declared.hints(function)
    entities = [hints.get(parameter.name) for parameter in parameters[:2]]
    found = [e for e in entities if isinstance(e, type) and issubclass(e, Entity)]
    if len(found) < 2:
        raise DeclarationError(
            f"{declared}: a mirror takes a source and a copy, as in (user: User, copy: Membership)"
        )
    if gone not in ("keep", "delete"):
        raise DeclarationError(f"{declared}: gone={gone!r}: keep or delete")
    name, needs = name or function.__name__, needs_of(parameters[2:], hints, declared)
    of, to = found[:2]
    finding = checked_copies(copies, to, declared), checked_source(source, of, declared)
    return Mirror(name, function, *finding, of, to, gone, tuple(needs))


def _changes(effect: Effect, item: Entity) -> bool:
    """Return whether an effect would change the item as it is, as far as this can be known."""
    if isinstance(effect, Put):
        return bool(effect.entity != item)
    if not isinstance(effect, Set) or effect.key != item.item_key:
        return True
    return any(getattr(item, name) != value for name, value in effect.fields.items())
