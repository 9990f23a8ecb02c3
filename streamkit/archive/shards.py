"""The archive of one stream: the chains of its shards, and who descends from whom.

TABLE/LABEL/archive.json                              the format, before anything else
TABLE/LABEL/shards/SHARD/POSITION.jsonl.gz            the links of a shard
TABLE/LABEL/lineage/PARENT/SHARD                      empty; PARENT is `root` if there is none
"""

from dataclasses import dataclass

import msgspec

from streamkit.archive.chain import Chain
from streamkit.archive.link import FORMAT
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

    async def check_format(self) -> None:
        """Write the format down, or check it.

        Raises:
            ConfigurationError: the archive was begun in another format.
        """
        name, mine = f"{self.stream}/archive.json", {"format": FORMAT, "codec": "jsonl.gz"}
        if await self.objects.create(name, msgspec.json.encode(mine)):
            return
        stored = await self.objects.read(name)
        if stored is not None and msgspec.json.decode(stored.body) != mine:
            raise ConfigurationError(f"{name} is not {mine}: another version has begun the archive")

    async def note(self, shard: str, parent: str | None) -> None:
        """Record a shard, before anything of it is read."""
        await self.objects.create(f"{self.stream}/lineage/{parent or ROOT}/{shard}", b"")

    async def children(self, parent: str) -> list[str]:
        """Return the children of a shard that the archive knows of."""
        prefix = f"{self.stream}/lineage/{parent}/"
        return [name.removeprefix(prefix) for name in await all_names(self.objects, prefix)]

    async def shards(self) -> list[Shard]:
        """Return every shard that the archive knows of."""
        prefix = f"{self.stream}/lineage/"
        found = await all_names(self.objects, prefix)
        pairs = [name.removeprefix(prefix).split("/", 1) for name in found]
        return [Shard(shard, None if parent == ROOT else parent) for parent, shard in pairs]
