"""Switched: what happens to pairs after the switch, and how they are taken back or ended.

    backward   a target changed: its source follows, so that a rollback loses nothing
    unturn     rollback after the switch: the source is the truth again, its targets are copies
    drop       rollback before the switch: copies go
    contract   the end: sources, or the parts of them that were moved, go

Each is one conditional write, or one transaction that checks what was read. In: an item as it was
read. Out: what was done, in a `Tally`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.actions import Wire
from streamkit.decode import ImageDecoder
from streamkit.entity import Entity
from streamkit.errors import ConfigurationError
from streamkit.migrate.calls import DONE, Changed, Outcome, Terms, unchanged
from streamkit.migrate.errors import error_id
from streamkit.migrate.in_place import Tally, mark_text
from streamkit.migrate.pairs import Conflict, Key, Late, Pairs, WireItem, as_read
from streamkit.migrate.transform import Image, Rewrite, Target, alike, plain, visible
from streamkit.model.codec import encode
from streamkit.model.copies import COPY, FROM, MOVED
from streamkit.model.matching import Matcher
from streamkit.model.origin import MARK
from streamkit.model.querying import query_request
from streamkit.model.schema import TableSchema

_PARTS_MAX = 90
"""Parts of one source that a change of one of them can be checked against."""


@dataclass
class Switched:
    """The way back and the end of the pairs of one migration."""

    pairs: Pairs

    def __post_init__(self) -> None:
        """Prepare to read targets."""
        transform = self.pairs.transform
        self._target = transform.migration.target
        self._decoder: ImageDecoder[Any] | None = None
        if self._target is not None:
            self._decoder = ImageDecoder(self._target, transform.target)

    # -- backward ------------------------------------------------------------------------------

    async def backward(self, key: Key, tally: Tally, *, old: WireItem | None = None) -> None:
        """Let the source follow a target that changed; `old` is what it was before."""
        if self.pairs.transform.migration.reverse is None:
            return
        one = self._part if self.pairs.transform.migration.mode == "split" else self._moved
        await self.pairs.persist(key, tally, lambda: one(key, old))

    async def _moved(self, key: Key, old: WireItem | None) -> Any:
        pairs, schema = self.pairs, self.pairs.transform.schema
        target = await pairs.calls.get(pairs.transform.target.name, key)
        if target is not None and COPY in target:
            return None  # its pair is not turned yet, and the source will say what it is
        shown = target or old
        if shown is None or COPY in shown:
            return None
        item = self._reversed(shown)
        source_key = {name: item[name] for name in schema.key_attributes}
        if pairs.transform.target.name == schema.name and source_key == dict(key):
            return None  # keys of both shapes look alike, and this is a source
        source = await pairs.calls.get(schema.name, source_key)
        if source is not None and COPY not in source:
            if target is None or alike(source, item):
                return None
            raise Late("it was written at its old place after the switch")
        check = self._check(pairs.transform.target, key, target)
        where = {"TableName": schema.name}
        terms = Terms()
        if target is None:
            if source is None:
                return None
            condition = terms.equals(COPY, source[COPY])
            body = {**where, "Key": source_key, **terms.request(ConditionExpression=condition)}
            return await pairs.calls.transact([check, {"Delete": body}])
        item[COPY] = {"S": f"{pairs.id}:{error_id(key)}"}
        if source is not None and alike(source, item):
            return None
        there = source[COPY] if source is not None else None
        if there is None:
            condition = f"attribute_not_exists({terms.name(schema.pk)})"
        else:
            condition = terms.equals(COPY, there)
        item[MARK] = {"S": mark_text(pairs.writer)}
        body = {**where, "Item": item, **terms.request(ConditionExpression=condition)}
        return await pairs.calls.transact([check, {"Put": body}])

    def _reversed(self, target: WireItem) -> dict[str, Wire]:
        """Return the source that a target comes from, by `reverse`, with what neither knows."""
        transform = self.pairs.transform
        reverse = transform.migration.reverse
        assert reverse is not None  # noqa: S101 - nobody comes here without
        found = reverse(self._entity(target))
        if not isinstance(found, Entity):
            raise TypeError("reverse= returns the entity that it was")
        item = found.attributes(transform.schema)
        known = set(self._entity(target).attributes(transform.target))
        known |= transform.schema.reserved_attributes
        unknown = {n: v for n, v in visible(target).items() if n not in known and n not in item}
        return {**unknown, **item}

    def _entity(self, item: WireItem) -> Any:
        if self._decoder is None:
            raise ConfigurationError(
                f"{self.pairs.transform.migration.declared}: say in its return annotation which"
                " entity it makes, so that reverse= can be given one"
            )
        return self._decoder.decode_item(visible(item))

    async def _part(self, key: Key, old: WireItem | None) -> Any:
        pairs, migration = self.pairs, self.pairs.transform.migration
        schema = pairs.transform.schema
        target = await pairs.calls.get(pairs.transform.target.name, key)
        shown = target or old
        if shown is None or COPY in shown or migration.source is None:
            return None
        source_key = migration.source(self._entity(shown))
        if source_key is None:
            return None
        source = await pairs.calls.get(schema.name, source_key.wire(schema))
        if source is None:
            return None
        if MOVED not in source and (target is None or not pairs.switched):
            return None  # its parts are gone because it is whole again, whatever is believed here
        parts = await self._parts(source)
        assert migration.reverse is not None  # noqa: S101 - nobody comes here without
        result = migration.reverse(
            pairs.transform.entity(source), [self._entity(part) for part in parts]
        )
        image = plain(source)
        rewrite = pairs.transform.interpret(result, plain(visible(source)), frozenset())
        if not rewrite.changes_item:
            return None
        if len(parts) > _PARTS_MAX:
            raise Conflict(f"it has more than {_PARTS_MAX} parts, too many to check at once")
        checks = [self._check(schema, self._key(schema, part), part) for part in parts]
        if target is None:
            checks.append(self._check(pairs.transform.target, key, None))
        update = self._update(source_key.wire(schema), image, rewrite, {MOVED: {"S": pairs.id}})
        if MOVED in source:
            return await pairs.calls.transact([update, *checks])
        # It never was whole, or it is rid of its parts for good, and this process is late.
        holds = pairs.book.phase_holds(pairs.phase)
        outcome = await pairs.calls.transact([holds, update, *checks])
        return None if isinstance(outcome, Changed) and 0 in outcome.items else outcome

    async def _parts(self, source: WireItem) -> list[dict[str, Wire]]:
        transform = self.pairs.transform
        assert transform.migration.collect is not None  # noqa: S101 - checked at declaration
        query = transform.migration.collect(transform.entity(source))
        items = await self.pairs.calls.query(**query_request(query, transform.target))
        return [item for item in items if COPY not in item]

    # -- passes --------------------------------------------------------------------------------

    async def unturn(self, source: WireItem, tally: Tally) -> None:
        """Make a turned source the truth again, and copies of its targets."""
        key = self._key(self.pairs.transform.schema, source)
        if self._is_turned(source):
            await self.pairs.persist(key, tally, lambda: self._unturn(key))

    async def _unturn(self, key: Key) -> Any:
        pairs, transform = self.pairs, self.pairs.transform
        source = await pairs.calls.get(transform.schema.name, key)
        if source is None or not self._is_turned(source):
            return None
        image = plain(source)
        targets = transform.of(image).targets
        if transform.migration.mode == "rekey" and not targets:
            if self._target and Matcher(self._target, transform.target).matches(source):
                return None  # a copy that looks like a source, and was never turned
            raise Conflict("the function no longer says where it was moved")
        actions = []
        for target in targets:
            there = await pairs.calls.get(transform.target.name, target.key)
            if there is None:
                continue
            if not await self._has_followed(source, there):
                await self.backward(target.key, Tally())
                return Changed({})
            actions.append(self._hiding(key, target.key, there))
        if transform.migration.mode == "rekey" and not actions:
            return await self._follow_removal(source, key, targets)
        mark = COPY if COPY in source else MOVED
        update = self._update(key, image, Rewrite(frozenset(), {}, frozenset({mark})), {})
        return await pairs.calls.transact([update, *actions])

    async def _follow_removal(
        self, source: WireItem, key: Key, targets: Sequence[Target]
    ) -> Outcome:
        """Delete a source whose target was deleted, while nobody looked perhaps."""
        schema, terms = self.pairs.transform.schema, Terms()
        condition = terms.equals(COPY, source[COPY])
        where = {"TableName": schema.name, "Key": dict(key)}
        body = {**where, **terms.request(ConditionExpression=condition)}
        absent = [self._check(self.pairs.transform.target, t.key, None) for t in targets]
        return await self.pairs.calls.transact([{"Delete": body}, *absent])

    def _hiding(self, source: Key, key: Key, item: WireItem) -> dict[str, Any]:
        """Return the action that makes a copy of a target; copies are deleted unseen, later."""
        mine = {COPY: {"S": f"{self.pairs.id}:{error_id(source)}"}}
        whole = Rewrite(frozenset(item), {}, frozenset({FROM}))
        return self._update(key, plain(item), whole, mine, of=self.pairs.transform.target)

    async def _has_followed(self, source: WireItem, target: WireItem) -> bool:
        """Say whether a source is what its target comes back as; less than the target, perhaps."""
        migration = self.pairs.transform.migration
        if migration.reverse is None:
            return True
        if migration.mode == "rekey":
            return alike(source, self._reversed(target))
        parts = [self._entity(part) for part in await self._parts(source)]
        result = migration.reverse(self.pairs.transform.entity(source), parts)
        rewrite = self.pairs.transform.interpret(result, plain(visible(source)), frozenset())
        return not rewrite.changes_item

    async def drop(self, item: WireItem, tally: Tally) -> None:
        """Delete a copy, or a derived item, that this migration has made."""
        name = COPY if self.pairs.transform.migration.moves else FROM
        if not self._is_mine(item, name):
            return
        schema, terms = self.pairs.transform.target, Terms()
        where = {"TableName": schema.name, "Key": self._key(schema, item)}
        if name == FROM:
            text = mark_text(self.pairs.writer, deleting=True)
            if not await self._announce(where, item, text):
                return  # it was made anew, and by somebody else
            item = {**item, MARK: {"S": text}}
        condition = as_read(terms, item, name)
        request = terms.request(ConditionExpression=condition)
        outcome = await self.pairs.calls.delete(**where, **request)
        tally.changed += outcome is DONE

    async def _announce(self, where: dict[str, Any], item: WireItem, text: str) -> bool:
        """Let an item that handlers can see say that a migration deletes it."""
        terms = Terms()
        condition = as_read(terms, item, FROM)
        update = f"SET {terms.name(MARK)} = {terms.value({'S': text})}"
        request = terms.request(UpdateExpression=update, ConditionExpression=condition)
        return await self.pairs.calls.update(**where, **request) is DONE

    async def contract(self, source: WireItem, tally: Tally) -> None:
        """Delete a turned source, or what was moved out of it."""
        if not self._is_turned(source):
            return
        key = self._key(self.pairs.transform.schema, source)
        await self.pairs.persist(key, tally, lambda: self._contract(key))

    async def _contract(self, key: Key) -> Any:
        pairs, transform = self.pairs, self.pairs.transform
        source = await pairs.calls.get(transform.schema.name, key)
        if source is None or not self._is_turned(source):
            return None
        where = {"TableName": transform.schema.name, "Key": dict(key)}
        if transform.migration.mode == "rekey":
            if not transform.of(plain(source)).targets:
                return None  # a copy that looks like a source, and was never turned
            terms = Terms()
            condition = terms.equals(COPY, source[COPY])
            return await pairs.calls.delete(**where, **terms.request(ConditionExpression=condition))
        image = plain(source)
        rewrite = transform.of(image)
        gone = Rewrite(rewrite.reads, rewrite.sets, rewrite.removes | {MOVED})
        body = self._update(key, image, gone, {})["Update"]
        return await pairs.calls.update(**body)

    def _is_turned(self, source: WireItem) -> bool:
        mode = self.pairs.transform.migration.mode
        if mode == "rekey":
            return self.pairs.transform.matches(source) and self._is_mine(source, COPY)
        return source.get(MOVED) == {"S": self.pairs.id}

    def _is_mine(self, item: WireItem, name: str) -> bool:
        return str(item.get(name, {}).get("S", "")).startswith(f"{self.pairs.id}:")

    # -- requests ------------------------------------------------------------------------------

    def _key(self, schema: TableSchema, item: WireItem) -> dict[str, Wire]:
        return {name: item[name] for name in schema.key_attributes}

    def _check(self, schema: TableSchema, key: Key, item: WireItem | None) -> dict[str, Any]:
        """Return the action that holds an item to what was read, whole."""
        terms = Terms()
        if item is None:
            condition = f"attribute_not_exists({terms.name(schema.pk)})"
        else:
            condition = unchanged(terms, schema, plain(item), frozenset(item))
        where = {"TableName": schema.name, "Key": dict(key)}
        return {"ConditionCheck": {**where, **terms.request(ConditionExpression=condition)}}

    def _update(
        self,
        key: Key,
        image: Image,
        rewrite: Rewrite,
        beside: dict[str, Wire],
        *,
        of: TableSchema | None = None,
    ) -> dict[str, Any]:
        """Return the update of a source, or of an item elsewhere, IF it is as it was read there."""
        schema, terms = of or self.pairs.transform.schema, Terms()
        touched = rewrite.reads | rewrite.sets.keys() | rewrite.removes
        condition = unchanged(terms, schema, image, frozenset(touched))
        sets = {n: encode(v, n) for n, v in rewrite.sets.items()} | beside
        sets[MARK] = {"S": mark_text(self.pairs.writer)}
        update = "SET " + ", ".join(
            f"{terms.name(name)} = {terms.value(value)}" for name, value in sets.items()
        )
        removes: Sequence[str] = sorted(rewrite.removes)
        if removes:
            update += " REMOVE " + ", ".join(terms.name(name) for name in removes)
        request = terms.request(UpdateExpression=update, ConditionExpression=condition)
        return {"Update": {"TableName": schema.name, "Key": dict(key), **request}}
