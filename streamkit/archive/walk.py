"""Walk a chain, link by link: what each one has, and where something is missing or cannot be read.

    forwards     from the shard's beginning       what an archive has, the history of an item
    backwards    from the end of the chain        a table as it was

In: a chain. Out: its links. A walk decides nothing: its caller says what a gap means. Memory holds
the records of one link.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink, Link, records_of
from streamkit.stream.decode import Record


@dataclass(frozen=True, slots=True)
class WalkedLink:
    """One link of a chain, with its records; where it cannot be read, `text` says why not.

    `begin` and `ends` are the positions between which it stands; one that cannot be read ends where
    the next one begins. `missing` is where a link should begin between this one and the one before
    it in the walk; empty if none is missing.
    """

    begin: str
    ends: str
    link: Link | None
    records: Sequence[Record]
    text: str = ""
    missing: str = ""


async def walk(
    chain: Chain, positions: Sequence[str], *, backwards: bool = False
) -> AsyncIterator[WalkedLink]:
    """Yield the links of a chain, each as far as it can be read.

    Args:
        chain: the chain of a shard.
        positions: where its links begin, in order, as they were listed.
        backwards: begin with the last link.
    """
    following = dict(zip(positions, [*positions[1:], BEYOND], strict=False))
    before = ORIGIN
    for begin in reversed(positions) if backwards else positions:
        link, records, text = await open_link(chain, begin)
        after = following[begin]
        ends = after if link is None else link.last
        if backwards:
            missing = ends if ends < after != BEYOND else ""
        else:
            missing, before = before if begin > before else "", max(before, ends)
        yield WalkedLink(begin, ends, link, records, text, missing)


async def open_link(chain: Chain, begin: str) -> tuple[Link | None, list[Record], str]:
    """Read a link with all its records; return them, or no link and the reason why not."""
    try:
        there = await chain.at(begin)
        if there is None:
            return None, [], f"object {chain.name(begin)} was removed meanwhile"
        link, body = there
        records = [
            record for page in records_of(body, chain.name(begin)) for record in page.records
        ]
    except DamagedLink as damaged:
        return None, [], str(damaged)
    if len(records) != link.count:
        text = f"object {chain.name(begin)} has {len(records)} of {link.count} records"
        return None, [], text
    return link, records, ""
