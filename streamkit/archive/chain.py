"""The chain of one shard: links that follow each other, each named by the position it begins after.

The object is the commit. The process that stores a link first decides what follows its position,
for all readers and for ever; a later process adopts that link. No other item or service is asked.
If a cursor says where the chain ends, it only caches this.
"""

from dataclasses import dataclass

import msgspec

from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink, Lines, Link, key_of
from streamkit.archive.objects import Objects
from streamkit.stream.decode.envelope import POSITION_DIGITS

_ENDING = ".jsonl.gz"


@dataclass(frozen=True)
class Chain:
    """The links of a shard; `stream` is the table's name and the stream's label."""

    objects: Objects
    stream: str
    shard: str

    def name(self, position: str) -> str:
        """Return the name of the link that begins after a position."""
        return f"{self._folder}{key_of(position)}{_ENDING}"

    @property
    def _folder(self) -> str:
        return f"{self.stream}/shards/{self.shard}/"

    async def at(self, position: str) -> tuple[Link, bytes] | None:
        """Read the link that begins after exactly this position, with its compressed records.

        Raises:
            DamagedLink: it is not what was stored.
        """
        stored = await self.objects.read(self.name(position))
        return None if stored is None else self._opened(position, stored.body)

    def _opened(self, position: str, stored: bytes) -> tuple[Link, bytes]:
        name = self.name(position)
        link, body = Link.opened(name, stored)
        place = self.stream, self.shard, key_of(position)
        if (link.stream, link.shard, link.after) != place:
            raise DamagedLink(f"object {name} belongs elsewhere: {link.shard} {link.after}")
        if link.last <= link.after and link.kind != "end":
            raise DamagedLink(f"object {name} leads nowhere")
        return link, body

    async def around(self, position: str) -> str | None:
        """Return where the last link begins that begins at or before a position, or None.

        The link may end before this position: then something is missing.
        """
        found = [p for p in await self.positions() if p <= key_of(position)]
        return found[-1] if found else None

    async def end_before(self, position: str) -> str:
        """Return where the last link ends that begins at or before a position.

        That is the shard's beginning if there is none, and its own beginning if it is damaged: such
        a link may be replaced.
        """
        begin = await self.around(position) or ORIGIN
        try:
            found = await self.at(begin)
        except DamagedLink:
            return begin
        return begin if found is None else found[0].last

    async def next_after(self, position: str) -> str | None:
        """Return where the next link begins, behind this position; None if there is none."""
        found = await self._positions_after(self.name(position), all_of_them=False)
        return found[0] if found else None

    async def positions(self) -> list[str]:
        """Return where each link begins, in order."""
        return await self._positions_after("", all_of_them=True)

    async def _positions_after(self, name: str, *, all_of_them: bool) -> list[str]:
        """Return the positions in names behind a name; other names do not belong to the chain."""
        found: list[str] = []
        while all_of_them or not found:
            names = await self.objects.names(self._folder, name)
            if not names:
                break
            texts = [n.removeprefix(self._folder).removesuffix(_ENDING) for n in names]
            found += [t for t in texts if len(t) == POSITION_DIGITS and t.isdecimal()]
            name = names[-1]
        return found

    async def first_record(self, after: str = "") -> float:
        """Return when the first record behind a position was created that can be read; 0 if none.

        A link that begins before the position is passed over.
        """
        link = await self._first_full([p for p in await self.positions() if p >= after])
        return 0.0 if link is None else link.first

    async def last_record(self) -> float:
        """Return when the last record was created that can be read; 0 if there is none."""
        link = await self._first_full((await self.positions())[::-1])
        return 0.0 if link is None else link.until

    async def _first_full(self, positions: list[str]) -> Link | None:
        """Return the first of these links that can be read and has records."""
        for position in positions:
            try:
                found = await self.at(position)
            except DamagedLink:
                continue
            if found is not None and found[0].count:
                return found[0]
        return None

    async def add(self, link: Link, lines: Lines | None = None) -> Link:
        """Store a link, or return the one that is stored already: the first writer decides.

        A damaged object is replaced, because this caller has read what belongs there. But if links
        follow it, it stays, and ends where the next one begins.
        """
        lines = lines or Lines()
        if lines.count:
            held = {"count": lines.count, "first": lines.first, "until": lines.until}
            link = msgspec.structs.replace(link, **held)
        sealed, body = link.sealed(lines.body())
        name = self.name(link.after)
        while not await self.objects.create(name, body):
            stored = await self.objects.read(name)
            if stored is None:
                continue  # it was removed meanwhile
            try:
                return self._opened(link.after, stored.body)[0]
            except DamagedLink:
                following = await self.next_after(link.after)
                if following is not None:
                    return msgspec.structs.replace(link, last=following, kind="hole")
                if await self.objects.replace(name, body, stored.tag):
                    return sealed
        return sealed

    async def extend(self, link: Link, lines: Lines | None = None) -> Link:
        """Store a link, behind the links that other workers have stored meanwhile.

        Returns:
            The last link up to the end of this one, or beyond it: another worker may have read
            further. Or the end of the chain, behind which nothing is stored.
        """
        lines = lines or Lines()
        while True:
            there = await self.add(link, lines)
            if there.kind == "end" or (there.last >= link.last and link.kind != "end"):
                return there
            link = msgspec.structs.replace(link, after=there.last, last=max(link.last, there.last))
            lines = lines.behind(there.last)

    async def tip(self, position: str) -> Link | None:
        """Return the last link behind a position; None if none follows it.

        Normally none follows, or one, if its writer died before it wrote its cursor. If none
        follows `BEYOND`, the end of a shard that is gone, an empty link is returned.
        """
        if await self.objects.read(self.name(position)) is None:
            return self.link(position, position) if position == BEYOND else None
        begin = (await self.positions())[-1]
        try:
            found = await self.at(begin)
        except DamagedLink:  # the next writer replaces it
            return msgspec.structs.replace(self.link(begin, begin), reason="damaged")
        return None if found is None else found[0]

    def link(self, after: str, last: str) -> Link:
        """Return a link of this shard, without records."""
        return Link(stream=self.stream, shard=self.shard, after=key_of(after), last=last)
