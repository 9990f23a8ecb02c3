"""An app for commands: something is parked, a fan-out waits, a migration fails for an item."""

from streamkit import Inserted, Put, Query, Set
from tests.upgrade.things import Note, Thing, counting

POISON = "poison"
app = counting(down=(POISON,))


def everything(change: Inserted[Thing]) -> Query[Thing]:
    if change.new.name == POISON:
        raise OSError("down")
    return Thing.query()


@app.fan_out(everything, inline=0)
def tell(change: Inserted[Thing], to: Thing) -> Put[Note]:
    return Put(Note(name=f"{change.new.name} to {to.name}"))


@app.migration("0001", Thing)
def doubled(name: str, n: int) -> Set[Thing]:
    if name == POISON:
        raise ValueError("not this one")
    return Set(double=f"{2 * n}")
