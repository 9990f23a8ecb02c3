"""What the worker processes of the tests run: two consumers of one table."""

from zlib import crc32

from streamkit import Add, App, Change, Entity, Modified, Set, Table
from tests.simulation.shop import TABLE, Edits, Sale, ShopSales

app = App("shop", table=TABLE)
app.aggregate(ShopSales)
audit = App("audit", table=TABLE)


class Chain(Entity, pk="CHAIN#{number}", sk="CHAIN"):
    number: int
    digest: int = 0


class Audit(Entity, pk="AUDIT#{number}", sk="AUDIT"):
    number: int
    changes: int = 0


@app.on
def edits(change: Modified[Sale]) -> Add[Edits]:
    """Count edits: a change that takes effect twice, or never, shows."""
    return Add(Edits.key(number=change.new.number), edits=1)


@app.on
async def chain(change: Change[Sale], table: Table) -> Set[Chain]:
    """Chain each change to all before it: one that is lost, repeated or out of order shows."""
    sale = change.new or change.old
    before = await table.get(Chain.key(number=sale.number))
    revision = change.new and change.new.revision
    digest = link(before.digest if before else 0, revision)
    return Set(Chain.key(number=sale.number), digest=digest)


def link(digest: int, revision: int | None) -> int:
    """Chain a revision, or None for a removal, to what came before."""
    return crc32(f"{digest}/{revision}".encode())


@audit.on
def audited(change: Change[Sale]) -> Add[Audit]:
    """Count every change."""
    sale = change.new or change.old
    return Add(Audit.key(number=sale.number), changes=1)
