"""The archive of one stream: the chains of its shards, and which shard descends from which.

TABLE/LABEL/archive.json                              the format, before anything else
TABLE/LABEL/shards/SHARD/POSITION.jsonl.gz            the links of a shard
TABLE/LABEL/lineage/PARENT/SHARD                      empty; PARENT is `root` if there is none
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from streamkit.archive.chain import Chain
from streamkit.archive.link import FORMAT, DamagedLink
from streamkit.archive.objects import Objects, all_names
from streamkit.errors import ConfigurationError
from streamkit.stream.lineage import Shard
from streamkit.stream.start import created_of

ROOT = "root"

_NAME = re.compile(r"[0-9A-Za-z-]+")
"""Matches the names of shards, and not those of what other programs leave in a directory."""
_DATED = re.compile(r"shardId-(\d{20})-")
"""Matches the name of a shard; the number is when it was created, in milliseconds."""
_NEW_SECONDS = 900.0
"""A stream that is so young has lost nothing when its shards are found unread for too long."""


class DamagedArchive(ConfigurationError):
    """What an archive says of itself cannot be read; its links may be whole."""


class _About(msgspec.Struct):
    """What `archive.json` says; `began` is in epoch seconds."""

    format: Any = None
    codec: Any = None
    began: float | None = None


def born(shard: str) -> float:
    """Return when a shard was created, as its name says; a name of another form is always new."""
    found = _DATED.match(shard)
    return int(found[1]) / 1000 if found else math.inf


@dataclass(frozen=True)
class ArchivedShards:
    """What an archive has of a stream; `stream` is the table's name and the stream's label."""

    objects: Objects
    stream: str

    def chain(self, shard: str) -> Chain:
        """Return the chain of a shard."""
        return Chain(self.objects, self.stream, shard)

    async def begin(self, now: float) -> None:
        """Write the format, and when the archive began; or check the format of one that was begun.

        An archive that begins with its stream has all of it, also what was written before this. If
        a rule of the bucket has removed what was written, the archive begins with the oldest
        record that is left.

        Raises:
            DamagedArchive: what was written cannot be read.
            ConfigurationError: the archive was begun in another format.
        """
        mine = {"format": FORMAT, "codec": "jsonl.gz"}
        there = await self._read_about()
        if there is None:
            began = await self._oldest() or self._begun_with_its_stream(now) or now
            about = msgspec.json.encode({**mine, "began": int(began)})
            if await self.objects.create(self._about, about):
                return
            there = await self._read_about()  # another worker was faster
        if there is not None and {name: getattr(there, name) for name in mine} != mine:
            raise ConfigurationError(f"{self._about} is not {mine}: another version has begun it")

    def _begun_with_its_stream(self, now: float) -> float:
        """Return when the stream was created if that was just now; 0 if it was not.

        Of an older one, records may be trimmed before they are read, and nothing would report it.
        """
        created = created_of(self.stream.rpartition("/")[2])
        return created if now - created <= _NEW_SECONDS else 0.0

    async def answer(self) -> None:
        """Ask for the beginning: it returns as soon as the archive answers."""
        await self.objects.read(self._about)

    async def began(self) -> float | None:
        """Return the moment from which on every change is archived; None if nothing is archived.

        Raises:
            DamagedArchive: what was written of it cannot be read.
        """
        said = await self._said()
        return said and max(said, await self._expired())

    async def _said(self) -> float | None:
        """Return the moment that was written at the beginning, or else of the oldest record."""
        there = await self._read_about()
        if there is not None:
            return there.began
        return await self._oldest() or None  # a rule of the bucket may have removed it

    async def _expired(self) -> float:
        """Return up to when a rule that removes what is old has removed shards; 0 if it has not.

        It removes shards from the oldest on, with what says which shard descends from which. So a
        parent that is missing and older than all that is left has expired; another is a gap.
        """
        parents = {shard.id: shard.parent for shard in await self.shards()}
        oldest = min(map(born, parents), default=0.0)
        gone = {s for s, parent in parents.items() if parent and parent not in parents}
        expired = [born(s) for s in gone if born(parents[s] or "") < oldest]
        return max((moment for moment in expired if moment < math.inf), default=0.0)

    async def began_if_known(self) -> float:
        """Return `began`; 0 if nothing is archived, or if what was written of it is damaged."""
        try:
            return await self.began() or 0.0
        except DamagedArchive:  # what it has may be whole
            return 0.0

    async def _oldest(self) -> float:
        """Return when the oldest record was created that is left; 0 if none is.

        Shards are asked before their children, and these only if their parent has no record.
        """
        parents = {shard.id: shard.parent for shard in await self.shards()}
        todo = [name for name, parent in parents.items() if parent not in parents]
        found: list[float] = []
        while todo:
            shard = todo.pop()
            first = await self.chain(shard).first_record()
            if first:
                found.append(first)
            else:
                todo += [name for name, parent in parents.items() if parent == shard]
        return min(found, default=0.0)

    async def born_after(self, shard: str) -> float:
        """Return a moment before which no record of a shard was created that was to be archived.

        Records of a shard are younger than those of its parent; and before the archive began,
        nothing was archived. It is 0 if nothing is known.
        """
        parents = {one.id: one.parent for one in await self.shards()}
        known, parent = 0.0, parents.get(shard)
        while parent is not None and not known:
            known, parent = await self.chain(parent).last_record(), parents.get(parent)
        return max(known, await self.began_if_known())

    @property
    def _about(self) -> str:
        return f"{self.stream}/archive.json"

    async def _read_about(self) -> _About | None:
        stored = await self.objects.read(self._about)
        try:
            return None if stored is None else msgspec.json.decode(stored.body, type=_About)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedArchive(
                f"{self._about} is damaged: {error}. Put it back from a copy or an older version,"
                " or remove it: the archive's writer writes it again with the next shard"
            ) from error

    async def note(self, shard: str, parent: str | None) -> None:
        """Record a shard, before any of its records is read."""
        await self.objects.create(f"{self.stream}/lineage/{parent or ROOT}/{shard}", b"")

    async def children(self, parent: str) -> list[str]:
        """Return the children of a shard that the archive has recorded."""
        return [shard.id for shard in await self._recorded(f"{parent}/")]

    async def shards(self) -> list[Shard]:
        """Return every shard that the archive has recorded."""
        return await self._recorded("")

    async def _recorded(self, parent: str) -> list[Shard]:
        """Return the recorded shards whose names begin so; folders and other files are none."""
        prefix = f"{self.stream}/lineage/"
        found = await all_names(self.objects, prefix + parent)
        pairs = [name.removeprefix(prefix).split("/") for name in found]
        return [
            Shard(pair[1], None if pair[0] == ROOT else pair[0])
            for pair in pairs
            if len(pair) == 2 and all(map(_NAME.fullmatch, pair))
        ]

    async def begins(self, since: float) -> frozenset[str]:
        """Return the shards in which reading must begin for every change since a moment.

        Those of their descendants that are read after them are left out.
        """
        parents = {shard.id: shard.parent for shard in await self.shards()}
        alive: set[str] = set()
        todo = [name for name in parents if name not in set(parents.values())]
        while todo:
            name = todo.pop()
            if name in alive or name not in parents or await self._ended_before(name, since):
                continue
            alive.add(name)
            parent = parents[name]
            todo += [parent] if parent is not None else []
        return frozenset(name for name in alive if parents[name] not in alive)

    async def _ended_before(self, shard: str, since: float) -> bool:
        """Return whether every change of a shard was created before a moment."""
        chain = self.chain(shard)
        ended = False
        for position in reversed(await chain.positions()):
            try:
                found = await chain.at(position)
            except DamagedLink:
                return False
            if found is None:
                return False
            ended = ended or found[0].kind == "end"
            if found[0].kind == "hole" and not found[0].until:
                return False  # nobody knows how late what is lost here was written
            if not ended or found[0].until:
                return ended and found[0].until < since
        return False  # without a record its age is not known
