"""An app whose handlers had a bug until now, and what its replays are asked for."""

from contextlib import contextmanager
from typing import Annotated

from streamkit import (
    Add,
    Aggregate,
    App,
    Change,
    Count,
    Delete,
    Entity,
    Inserted,
    Key,
    Modified,
    Policy,
    Put,
    Query,
    Removed,
    Send,
    Set,
    Table,
    absent,
    became,
)
from streamkit.operate.replay.replay import replay
from streamkit.operate.replay.report import ReplayWish
from streamkit.testing import Harness
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.recording import Recorder
from tests.simulation.archived import SELDOM

PATIENT = Policy(attempts=1, retry_seconds=50_000, retry_seconds_max=50_000, breaker=False)
_SOUND = {"bug": False, "down": False}
STATE = dict(_SOUND)
"""What the handlers do wrong, for the moment."""


class Order(Entity, pk="ORDER#{number}", sk="ORDER#{number}"):
    number: int
    status: str = "PLACED"
    note: str | None = None
    version: int | None = None
    label: str | None = None


class Label(Entity, pk="LABEL#{number}", sk="LABEL#{number}"):
    number: int
    text: str = ""


class Step(Entity, pk="STEP#{number}", sk="STEP#{status}"):
    number: int
    status: str


class Place(Entity, pk="PLACE#{number}", sk="PLACE#{status}"):
    number: int
    status: str


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE#{number}"):
    number: int
    count: int = 0


class Copy(Entity, pk="COPY#{number}", sk="COPY#{user}"):
    number: int
    user: str = "ann"
    status: str = ""


class Marker(Entity, pk="MARKER#{status}", sk="MARKER#{number}"):
    status: str
    number: int


class Watch(Entity, pk="WATCH#{number}", sk="WATCH#{user}"):
    number: int
    user: str


class Message(Entity, pk="MESSAGE#{user}", sk="MESSAGE#{number}"):
    user: str
    number: int
    text: str = ""


class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Order) -> Key["Orders"]:
        return cls.key()


def text_of(order):
    return f"{'bug' if STATE['bug'] else 'fixed'} {order.status}"


def watchers(change: Inserted[Order] | Modified[Order]) -> Query[Watch]:
    return Watch.query(number=change.new.number)


def app_of():
    """Return an app; its handlers are as buggy as `STATE` says."""
    app = App("orders", table="Orders", archive=MemoryArchive(), policy=PATIENT)
    app.aggregate(Orders)

    @app.on
    def labels(change: Inserted[Order] | Modified[Order]) -> Put[Label]:
        if STATE["down"] or STATE.get("only") == change.new.number:
            raise OSError("down")
        return Put(Label(number=change.new.number, text=text_of(change.new)))

    @app.on
    def unlabel(change: Removed[Order]) -> Delete[Label]:
        return Delete(Label.key(number=change.key.pk.removeprefix("ORDER#")))

    @app.on(when=became("status", "SHIPPED"))
    def shipped(change: Modified[Order]) -> Put[Step]:
        return Put(Step(number=change.new.number, status="SHIPPED"))

    @app.on
    def from_to(change: Modified[Order]) -> Put[Label]:
        return Put(
            Label(number=-change.new.number, text=f"{change.old.status} to {change.new.status}")
        )

    @app.on
    def trail(change: Inserted[Order] | Modified[Order]) -> Put[Step]:
        return Put(Step(number=change.new.number, status=change.new.status))

    @app.on
    def places(change: Inserted[Order] | Modified[Order]) -> list[Put[Place] | Delete[Place]]:
        here = Place(number=change.new.number, status=text_of(change.new))
        if change.old is None or change.old.status == change.new.status:
            return [Put(here)]
        before = text_of(change.old)
        return [Put(here), Delete(Place.key(number=change.new.number, status=before))]

    @app.on
    def once(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number)).only_if(absent, otherwise="omit")

    @app.on
    async def asks(change: Inserted[Order]) -> Put[Step]:
        return Put(Step(number=change.new.number, status="asked"))

    queue = app.sink(Recorder("queue"))

    @app.on
    def tells(change: Inserted[Order]) -> tuple[Put[Step], Send]:
        return Put(Step(number=change.new.number, status="told")), Send(queue, change.new)

    @app.on
    async def reads(change: Inserted[Order], table: Table) -> Put[Step] | None:
        await table.get(Label.key(number=change.new.number))
        return Put(Step(number=change.new.number, status="read"))

    @app.on
    def silent(change: Inserted[Order]):
        return Add(Notice.key(number=-1), count=1) if not STATE["bug"] else None

    @app.mirror(
        copies=lambda order: Copy.query(number=order.number),
        source=lambda copy: Order.key(number=copy.number),
    )
    def copies(order: Order, copy: Copy) -> Set[Copy]:
        return Set(copy.item_key, status=order.status)

    @app.derive
    def marker(order: Order) -> Marker:
        return Marker(status=order.status, number=order.number)

    @app.fan_out(watchers)
    def tell(change: Inserted[Order] | Modified[Order], to: Watch) -> Put[Message]:
        return Put(Message(user=to.user, number=change.new.number, text=change.new.status))

    @app.on
    def counts(change: Change[Order]) -> Add[Notice]:
        return Add(Notice.key(number=0), count=1)

    return app


def labelling():
    """Return an app with a handler that writes the items to which it listens."""
    app = App("orders", table="Orders", archive=MemoryArchive(), policy=PATIENT)

    @app.on(cycle="bounded")
    def own(change: Inserted[Order] | Modified[Order]) -> Set[Order] | None:
        if change.new.label == text_of(change.new):
            return None
        return Set(change.new.item_key, label=text_of(change.new))

    return app


@contextmanager
def rig(make=app_of, shards=1, settings=SELDOM):
    """Yield a harness whose handlers are sound until a test says otherwise."""
    STATE.update(_SOUND)
    try:
        with Harness(make(), shards=shards, settings=settings, lenient=True) as harness:
            yield harness
    finally:
        STATE.update(_SOUND)


def buggy(harness, *changes):
    """Write orders while the handlers have a bug, then wait for a day."""
    STATE["bug"] = True
    for number, status in changes:
        harness.put(Order(number=number, status=status))
        harness.settle()
        harness.advance("10s")
    harness.advance("1h")
    harness.stop()  # what a worker asks in a quiet day takes most of a test
    harness.advance("20h")
    harness.settle()
    harness.advance("4h")
    STATE["bug"] = False


def wish(harness, *handlers, **more):
    now = harness.world.clock.time()
    asked = {"since": now - 20 * 86_400, "until": now - 1, "allow_loss": True}
    return ReplayWish(handlers=handlers, **asked | more)


def replayed(harness, *handlers, **more):
    clock, what = harness.world.clock, wish(harness, *handlers, **more)
    return harness.operate(lambda aws: replay(harness.app, aws, what, clock=clock))
