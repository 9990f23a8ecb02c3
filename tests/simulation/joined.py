"""An app with a handler that starts apart and joins, and what tests of that ask about it."""

from streamkit import Add, App, Entity, Inserted, Modified, PoisonChange, Set, Table
from streamkit.operate.moves import join_handler
from streamkit.settings import Settings

OFTEN = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=60, look_interval=5)


class Deed(Entity, pk="DEED#{number}", sk="DEED"):
    number: int
    version: int = 1


class Count(Entity, pk="COUNT#{by}", sk="COUNT"):
    by: str
    changes: int = 0


class Last(Entity, pk="LAST#{number}", sk="LAST"):
    number: int
    version: int = 0


async def follow(
    change: Inserted[Deed] | Modified[Deed], table: Table
) -> tuple[Add[Count], Set[Last]]:
    """Park a change that comes twice, or before the one before it."""
    number, version = change.new.number, change.new.version
    last = await table.get(Last.key(number=number))
    if (last.version if last else 0) != version - 1:
        raise PoisonChange(f"version {version} comes after {last and last.version}")
    return Add(Count.key(by="follow"), changes=1), Set(Last.key(number=number), version=version)


def app_of(follows="apart"):
    """The app before the join (`apart`), after it (`joined`), and without the handler (`no`)."""
    app = App("deeds", table="Deeds", entities=[Last])

    @app.on
    def count(change: Inserted[Deed] | Modified[Deed]) -> Add[Count]:
        return Add(Count.key(by="app"), changes=1)

    if follows == "apart":
        app.on(start="2020-01-01")(follow)
    if follows == "joined":
        app.on(follow)
    return app


class Deeds:
    """What the application writes, and what is counted of it."""

    def __init__(self, harness):
        self.harness, self.versions, self.changes = harness, {}, 0

    def write(self, *numbers):
        for number in numbers:
            version = self.versions[number] = self.versions.get(number, 0) + 1
            self.harness.put(Deed(number=number, version=version))
            self.changes += 1

    def counted(self, by):
        there = self.harness.get(Count.key(by=by))
        return there.changes if there else 0

    def all_done(self):
        assert not self.harness.parked()
        assert self.counted("app") == self.changes
        assert self.counted("follow") == self.changes
        last = {one.number: one.version for one in self.harness.scan(Last)}
        assert last == self.versions


def join(harness, app=None, name="follow"):
    clock = harness.world.clock
    return harness.operate(
        lambda aws: join_handler(app or app_of("joined"), aws, name, clock=clock)
    )


def run_alone(harness, app):
    """Let the workers of one consumer read all there is, and stop them."""
    before, harness.app = harness.app, app
    harness.settle()
    harness.stop()
    harness.app = before


def deploy(harness, app):
    harness.stop()
    harness.app = app
    harness.settle()


def ahead_of_its_app(harness):
    """Let both read, stop both, write more, and let the handler alone read that."""
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    deeds.write(*range(8))
    run_alone(harness, harness.app.listeners["follow"])
    return deeds
