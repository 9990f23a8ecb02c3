"""Compare a sample of the latest archived images with the table: is the archive what was written?

In: an archive with the stream behind its end, and how many items. Out: how many were compared, and
which differ. The sample is the keys with the smallest hashes, so every item has the same chance,
and one pass over all changes needs memory for the sample alone. Items that differ are looked at
again with the changes that have come meanwhile: a table that is written to is no difference.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import anyio

from streamkit.core.tables import AppTables
from streamkit.model.codec import decode, decode_image, key_digest
from streamkit.operate.past.past import PastChanges
from streamkit.progress.actions import CONTROL_PREFIX, ItemRef, Wire, item_ref
from streamkit.progress.fetch import fetch_by_ref
from streamkit.stream.decode import Record

_LOOKS = 3
_SETTLED_SECONDS = 5.0
"""A change that was read in the table is in the stream by then."""


@dataclass(frozen=True, slots=True)
class SampledItems:
    """How many items of a sample were compared, and the keys of those that differ."""

    compared: int
    different: tuple[ItemRef, ...]

    def named(self, *, show_keys: bool) -> list[str]:
        """Return the items that differ, by hashes of their keys unless keys are to be shown."""
        parts = [[ref.pk[1], *([ref.sk[1]] if ref.sk else [])] for ref in self.different]
        return [" ".join(map(str, p)) if show_keys else key_digest(*p) for p in parts]


@dataclass
class _Sample:
    """The latest images of the `size` items whose keys have the smallest hashes."""

    tables: AppTables
    size: int
    latest: dict[ItemRef, Record] = field(default_factory=dict)
    _largest: list[tuple[int, ItemRef]] = field(default_factory=list)

    def note(self, record: Record) -> None:
        """Take a change into account: the changes of an item come in order."""
        schema = self.tables.table
        if record.flaw or record.keys[schema.pk].get("S", "").startswith(CONTROL_PREFIX):
            return
        ref = item_ref(schema, record.keys)
        if ref in self.latest:
            self.latest[ref] = record
            return
        digest = hashlib.blake2b(repr(ref).encode(), digest_size=8).digest()
        place = -int.from_bytes(digest)
        if len(self.latest) < self.size:
            heapq.heappush(self._largest, (place, ref))
        elif place > self._largest[0][0]:
            _, gone = heapq.heapreplace(self._largest, (place, ref))
            del self.latest[gone]
        else:
            return
        self.latest[ref] = record

    def different(self, items: Mapping[ItemRef, Mapping[str, Wire]]) -> tuple[ItemRef, ...]:
        """Return the items of the sample that are not as their latest change left them."""
        return tuple(
            ref for ref, record in self.latest.items() if not _same(record, items.get(ref))
        )


def _same(record: Record, item: Mapping[str, Wire] | None) -> bool:
    left = None if record.new_image is None else decode_image(record.new_image)
    now = None if item is None else {name: decode(value) for name, value in item.items()}
    return left == now


async def compare_sample(past: PastChanges, tables: AppTables, size: int) -> SampledItems:
    """Compare the latest images of some items with the table.

    Raises:
        RetentionLost: the archive lacks changes.
    """
    sample = _Sample(tables, size)
    since = 0.0
    different: tuple[ItemRef, ...] = ()
    for _ in range(_LOOKS):
        read = past.clock.time()  # the table's, which stamps changes
        await past.shards.each(partial(_note_all, sample, past, since))
        keys = (record.keys for record in sample.latest.values())
        different = sample.different(await fetch_by_ref(past.aws.dynamodb, tables.table, keys))
        if not different:
            break
        since = read - 2 * _SETTLED_SECONDS  # what is left out here was read before
        await anyio.sleep(_SETTLED_SECONDS)
    return SampledItems(len(sample.latest), different)


async def _note_all(sample: _Sample, past: PastChanges, since: float, shard: str) -> bool:
    async for page in past.pages(shard, since):
        for record in page.records:
            sample.note(record)
    return True
