"""Delete the old items of pairs at the end, after a check of what old code wrote.

    compare    old code has written no old item whose new ones do not know of it
    contract   an old item, or what was moved out of it, goes IF it is exactly what was carried
    close      afterwards: old code deleted the old item of a new one that still names it

An old item and its name in its new ones are removed in one transaction, so that the items always
show whether old code or the migration deleted it. In: items as they were read. Out: what was done,
in a `Tally`. On failure: what old code wrote is an error; see `agreement`.
"""

from dataclasses import dataclass
from typing import Any

from streamkit.migrate.agreement import Agreement, is_ours, key_of
from streamkit.migrate.pairs import Pairs
from streamkit.migrate.tallies import Tally
from streamkit.migrate.transform import Rewrite, plain
from streamkit.migrate.writes import Key, WireItem, check, delete, rewritten, whole
from streamkit.model.copies import BASE, COPY, FROM, MOVED, SOURCE
from streamkit.progress.scan.places import place_of, place_text


@dataclass(frozen=True)
class Ending:
    """The end of one migration's pairs."""

    pairs: Pairs

    @property
    def _agreement(self) -> Agreement:
        return self.pairs.agreement

    async def compare(self, item: WireItem, tally: Tally) -> None:
        """Check that no code has written a source without its targets."""
        schema = self.pairs.transform.schema
        if self._leads_somewhere(item) and not self._agreement.holds(item):
            await self.pairs.forward(key_of(schema, item), tally, switch=True, carry=False)
        if SOURCE in item and self._is_mine(item, FROM):
            key = key_of(self.pairs.transform.target, item)
            await self.pairs.persist(key, tally, lambda: self._see_source(key, item))

    async def _see_source(self, key: Key, target: WireItem) -> None:
        source = place_of(target[SOURCE]["S"])
        there = await self.pairs.calls.get(self.pairs.transform.schema.name, source)
        if there is not None and not self._leads_somewhere(there):
            await self._agreement.report_late(source, there)  # put again, without what was moved
        elif there is None and await self._agreement.is_as_read(key, target):
            await self._agreement.report_deleted(source, key)

    async def contract(self, source: WireItem, tally: Tally) -> None:
        """Delete a source, or what was moved out of it, IF it is exactly what was carried."""
        if not self._leads_somewhere(source):
            return
        key = key_of(self.pairs.transform.schema, source)
        await self.pairs.persist(key, tally, lambda: self._contract(key))

    async def _contract(self, key: Key) -> Any:
        pairs, transform = self.pairs, self.pairs.transform
        source = await pairs.calls.get(transform.schema.name, key)
        if source is None or (COPY in source and not self._is_mine(source, COPY)):
            return None
        image = plain(source)
        rewrite = transform.of(image)
        there = {
            place_text(target.key): await pairs.calls.get(transform.target.name, target.key)
            for target in rewrite.targets
        }
        if not self._agreement.holds(source):
            if not rewrite.targets and BASE not in source:
                return None  # it has no targets, or is a target that looks like a source
            if not await self._agreement.is_decided(key, source):
                return await self._agreement.settle(key, source, rewrite, there)
        stamps = [
            self._agreement.unstamped(target.key, found)
            for target in rewrite.targets
            if (found := there[place_text(target.key)]) is not None
            and self._agreement.comes_from(found, key)
        ]
        if transform.migration.mode == "rekey":
            gone = delete(transform.schema, key, whole(transform.schema, source))
        else:
            marks = frozenset({MOVED, BASE} & source.keys())
            rest = Rewrite(rewrite.reads, rewrite.sets, rewrite.removes | marks)
            gone = rewritten(transform.schema, key, image, rest, self.pairs.writer)
        return await pairs.calls.transact([gone, *stamps])

    async def close(self, target: WireItem, tally: Tally) -> None:
        """Check that old code has not deleted the source that a target still names."""
        if SOURCE in target and self._is_mine(target, FROM):
            key = key_of(self.pairs.transform.target, target)
            await self.pairs.persist(key, tally, lambda: self._close(key))

    async def _close(self, key: Key) -> Any:
        pairs, transform = self.pairs, self.pairs.transform
        target = await pairs.calls.get(transform.target.name, key)
        if target is None or SOURCE not in target or not self._is_mine(target, FROM):
            return None
        source_key = place_of(target[SOURCE]["S"])
        source = await pairs.calls.get(transform.schema.name, source_key)
        if source is not None and self._leads_somewhere(source):
            return await self._contract(source_key)
        if source is not None:
            await self._agreement.report_late(source_key, source)
        else:
            await self._agreement.report_deleted(source_key, key)
        held = check(transform.schema, source_key, source)
        return await pairs.calls.transact([held, self._agreement.unstamped(key, target)])

    def _leads_somewhere(self, item: WireItem) -> bool:
        """Return whether an item moves, or has moved; True also if that cannot be found out."""
        transform = self.pairs.transform
        if not transform.matches(item) or is_ours(transform.migration, item):
            return transform.matches(item)
        try:
            return bool(transform.of(plain(item)).targets)
        except Exception:  # noqa: BLE001 - a later, closer look reports what the function raises
            return True

    def _is_mine(self, item: WireItem, name: str) -> bool:
        return str(item.get(name, {}).get("S", "")).startswith(f"{self.pairs.id}:")
