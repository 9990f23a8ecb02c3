"""A small app for operations that one version begins and the other one ends.

It imports public names alone, so that its text is the same app in both versions.
"""

from typing import Annotated

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Entity,
    Inserted,
    Key,
    Max,
    Modified,
    Policy,
    Query,
    Set,
)

PATIENT = Policy(attempts=1, retry_seconds=50_000, retry_seconds_max=50_000, breaker=False)


class Thing(Entity, pk="THINGS", sk="THING#{name}"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE"):
    name: str
    n: int = 0
    times: int = 0


class Things(Aggregate[Thing], pk="COUNT", sk="THINGS"):
    things: Annotated[int, Count()] = 0
    most: Annotated[int | None, Max("n")] = None

    @classmethod
    def group(cls, _: Thing) -> Key["Things"]:
        return cls.key()

    @classmethod
    def members(cls) -> Query[Thing]:
        return Thing.query()


def counting(down=()):
    """Count; and note how often a thing changed, which fails for the names in `down`."""
    app = App("counting", table="Things", entities=[Note], policy=PATIENT)
    app.aggregate(Things)

    @app.on
    def times(change: Inserted[Thing] | Modified[Thing]) -> Add[Note]:
        if change.new.name in down:
            raise OSError("down")
        return Add(Note.key(name=change.new.name), times=1)

    return app


def copying(down=()):
    """Note what a thing was last; to do it again does no harm."""
    app = App("copying", table="Things", entities=[Note], policy=PATIENT)

    @app.on
    def notes(change: Inserted[Thing] | Modified[Thing]) -> Set[Note]:
        return Set(Note.key(name=change.new.name), n=change.new.n)

    return app
