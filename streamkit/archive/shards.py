"""The archive of one stream: the chains of its shards, and which shard descends from which.

TABLE/LABEL/archive.json                              the format, before anything else
TABLE/LABEL/shards/SHARD/POSITION.jsonl.gz            the links of a shard
TABLE/LABEL/lineage/PARENT/SHARD                      empty; PARENT is `root` if there is none
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from streamkit.archive.chain import Chain
from streamkit.archive.link import FORMAT, DamagedLink
from streamkit.archive.objects import Objects, all_names
from streamkit.errors import ConfigurationError
from streamkit.stream.lineage import Shard

ROOT = "root"


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

        Raises:
            ConfigurationError: the archive was begun in another format.
        """
        mine = {"format": FORMAT, "codec": "jsonl.gz"}
        about = msgspec.json.encode({**mine, "began": int(now)})
        if await self.objects.create(self._about, about):
            return
        there = await self._read_about()
        if {name: there.get(name) for name in mine} != mine:
            raise ConfigurationError(f"{self._about} is not {mine}: another version has begun it")

    async def began(self) -> float | None:
        """Return the moment from which on every change is archived; None if nothing is archived."""
        return (await self._read_about()).get("began")

    @property
    def _about(self) -> str:
        return f"{self.stream}/archive.json"

    async def _read_about(self) -> dict[str, Any]:
        stored = await self.objects.read(self._about)
        return {} if stored is None else msgspec.json.decode(stored.body)

    async def note(self, shard: str, parent: str | None) -> None:
        """Record a shard, before any of its records is read."""
        await self.objects.create(f"{self.stream}/lineage/{parent or ROOT}/{shard}", b"")

    async def children(self, parent: str) -> list[str]:
        """Return the children of a shard that the archive has recorded."""
        prefix = f"{self.stream}/lineage/{parent}/"
        return [name.removeprefix(prefix) for name in await all_names(self.objects, prefix)]

    async def shards(self) -> list[Shard]:
        """Return every shard that the archive has recorded."""
        prefix = f"{self.stream}/lineage/"
        found = await all_names(self.objects, prefix)
        pairs = [name.removeprefix(prefix).split("/", 1) for name in found]
        return [Shard(shard, None if parent == ROOT else parent) for parent, shard in pairs]

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
