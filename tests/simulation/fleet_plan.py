"""Draws the plan of a run from its seed: the world's shape, and everything that befalls the fleet.

A *long* plan lasts 30 hours with a patient fleet, so that shards roll by themselves and records are
trimmed behind it; one with an *outage* has a time in which no worker is alive, mostly longer than
the stream's retention; a short one lasts a minute and is full of trouble. In a *late* one, which is
short, some writes arrive minutes after they were sent, and some replies too late. Times are virtual
seconds.
"""

import random

from streamkit.testing.faults import KINDS, LATE_KINDS
from tests.simulation.plan import Plan, PlannedEvent

PATIENT = {
    "heartbeat": 600.0,
    "lease": 1500.0,
    "poll_ceiling": 900.0,
    "list_interval": 1800.0,
    "look_interval": 300.0,
    "checkpoint_interval": 3600.0,
}
SLOW = {
    "heartbeat": 12.0,
    "lease": 30.0,
    "poll_ceiling": 20.0,
    "list_interval": 60.0,
    "look_interval": 6.0,
}
"""Of a fleet that waits for what is late: minutes of a quick one are dear to simulate."""
LONG_EVERY = 16
"""One seed in so many is long."""
OUTAGE_EVERY, OUTAGE_AT = LONG_EVERY, 6
"""And one in so many, the sixth, has an outage."""
LATE_EVERY, LATE_AT = LONG_EVERY, 9
"""And one in so many, the ninth, has writes that are late."""
_UNKNOWN = ("lost_reply", "lost_reply", "late", "lost_request")
_HOUR = 3600.0
_LONG_SECONDS = 30 * _HOUR


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = random.Random(f"plan {seed}")
    if seed % OUTAGE_EVERY == OUTAGE_AT - 1:
        return _with_outage(rng)
    is_long = seed % LONG_EVERY == LONG_EVERY - 1
    is_late = seed % LATE_EVERY == LATE_AT - 1
    seconds = _LONG_SECONDS if is_long else rng.uniform(25.0, 50.0)
    stretch = 210.0 if is_long else 1.0
    if is_late:
        seconds, stretch = 4 * seconds, 4.0
    workers = 1 if is_long else rng.choice([1, 2] if is_late else [1, 2, 2, 3, 3, 4, 5])
    shape = {
        "shards": rng.choice([1, 2]) if is_long else rng.choice([1, 2, 3, 4]),
        "seconds": round(seconds, 1),
        "settings": PATIENT
        if is_long
        else {"checkpoint_interval": rng.choice([5.0, 60.0])} | (SLOW if is_late else {}),
        "engine": _engine(rng, is_long=is_long),
    }
    events = [PlannedEvent("start", at=0.0, worker=n, version=1) for n in range(workers)]
    events += [event for _ in range(3 if is_late else 1) for event in _writes(rng, seconds)]
    events += _lineage(rng, seconds, is_long=is_long)
    events += _lives(rng, seconds, workers, stretch=stretch)
    numbers = sorted({event["worker"] for event in events if event.what == "start"})
    events += _faults(rng, numbers)
    events += _storms(rng, numbers)
    events += _late(rng, numbers) if is_late else []
    return Plan(shape, tuple(events))


def _with_outage(rng):
    """Some work, the whole fleet away, and some work; the app goes on without what is lost."""
    ends, hours = (
        rng.uniform(600.0, 3.0 * _HOUR),
        rng.choice([rng.uniform(18.0, 22.0)] + 7 * [None]),
    )
    back = ends + _HOUR * (hours or rng.uniform(25.0, 60.0))
    seconds = back + rng.uniform(1.0, 3.0) * _HOUR
    workers = rng.choice([1, 2])
    shape = {
        "shards": rng.choice([1, 2, 3]),
        "seconds": round(seconds, 1),
        "settings": PATIENT,
        "on_loss": "resume",
        "engine": _engine(rng, is_long=True),
    }
    events = [PlannedEvent("start", at=0.0, worker=n, version=1) for n in range(workers)]
    events += _writes(rng, ends) + _writes(rng, 4 * _HOUR, since=ends)[:3]
    events += (
        _writes(rng, back - ends, since=ends)[:3] + _writes(rng, seconds - back, since=back)[:3]
    )
    events += _lineage(rng, back, is_long=True)
    numbers = range(workers, workers + rng.choice([1, 2]))
    for worker in range(workers):
        at = round(ends + rng.uniform(0.0, 60.0), 2)
        if worker == 0 and rng.random() < 0.25:  # what stands still for days is dear to simulate
            events.append(
                PlannedEvent("freeze", at=at, worker=worker, seconds=round(back - ends, 2))
            )
        else:
            events.append(PlannedEvent(rng.choice(["kill", "stop"]), at=at, worker=worker))
    events += [
        _start(back + rng.uniform(0.0, 600.0), number, rng.choice([1, 2])) for number in numbers
    ]
    events += _faults(rng, [*range(workers), *numbers])
    return Plan(shape, tuple(events))


def _engine(rng, *, is_long):
    return {
        "empty_page_chance": rng.choice([0.0, 0.3]),
        "children_hidden": rng.choice([0.0, 8.0]),
        "parents_open": rng.choice([0.0, 30.0]),
        "publish_delay": rng.choice([0.0, 0.5]),
        "iterator_lifetime": 900.0 if is_long else rng.choice([900.0, 3.0]),
        "ignore_shard_filter": rng.random() < 0.3,
        "listing_page": rng.choice([2, 100]),
        "end_with_records_chance": rng.choice([0.0, 0.5, 1.0]),
        "unordered_listing": True,
        "spread_collections": True,
    }


def _writes(rng, seconds, *, since=0.0):
    return [
        PlannedEvent(
            "write",
            at=round(since + rng.uniform(0.0, seconds), 2),
            count=rng.randrange(1, 8),
            seed=rng.randrange(1 << 30),
            poison=0.1,
        )
        for _ in range(rng.randrange(6, 12))
    ]


def _lineage(rng, seconds, *, is_long):
    """Splits and rolls; a long run's shards roll by themselves, every four hours."""
    count = rng.randrange(2) if is_long else rng.randrange(5)
    return [
        PlannedEvent(
            rng.choice(["split", "roll", "roll", "roll_all"]),
            at=round(rng.uniform(1.0, seconds), 2),
            shard=rng.randrange(8),
        )
        for _ in range(count)
    ]


def _lives(rng, seconds, workers, *, stretch):
    """Kills, freezes, polite stops and roll-outs; workers that go are replaced sooner or later.

    `stretch` is how much slower leases and heartbeats are than by default. A fleet of a long plan
    does not grow.
    """
    events, version, since = [], 1, dict.fromkeys(range(workers), 0.0)
    whats = ["kill", "kill", "freeze", "freeze", "freeze", "stop"]
    whats += [] if stretch > 1.0 else ["add", "upgrade"]
    moments = sorted(rng.uniform(2.0, seconds) for _ in range(rng.randrange(1, 6)))
    for number, at in enumerate(moments, workers):
        alive = [worker for worker, start in since.items() if start < at]
        what = rng.choice(whats) if alive else "add"
        if what in ("upgrade", "add"):
            version = 3 - version if what == "upgrade" else version
            since[number] = at
            events.append(_start(at, number, version))
            continue
        worker = rng.choice(alive)
        if what == "freeze":
            length = round(stretch * rng.uniform(8.0, 16.0), 2)
            events.append(PlannedEvent("freeze", at=round(at, 2), worker=worker, seconds=length))
            continue
        if what == "kill" and stretch == 1.0 and rng.random() < 0.6:
            call, moment = rng.randrange(5, 250), rng.choice(["before", "after"])
            events.append(PlannedEvent("kill", worker=worker, call=call, moment=moment))
        else:
            events.append(PlannedEvent(what, at=round(at, 2), worker=worker))
        del since[worker]
        since[number] = at + stretch * rng.uniform(0.0, 10.0)
        events.append(_start(since[number], number, version))
    return events


def _start(at, worker, version):
    return PlannedEvent("start", at=round(at, 2), worker=worker, version=version)


def _faults(rng, numbers):
    return [
        PlannedEvent("fault", worker=number, call=rng.randrange(3, 250), kind=rng.choice(KINDS))
        for number in numbers
        for _ in range(rng.randrange(0, 22))
    ]


def _storms(rng, numbers):
    """Let commits fail more often in a row than the SDK repeats them, so that their outcome is unknown."""
    return [
        PlannedEvent("commit_fault", worker=number, call=call, kind=rng.choice(_UNKNOWN))
        for number in numbers
        if rng.random() < 0.3
        for call in [rng.randrange(10, 150)] * rng.randrange(3, 7)
    ]


def _late(rng, numbers):
    """Writes of every kind that arrive minutes late or are answered too late, commits above all."""
    return [
        PlannedEvent(what, worker=number, call=rng.randrange(3, 400), kind=rng.choice(LATE_KINDS))
        for number in numbers
        for what in ["fault"] * 4 + ["commit_fault"] * 16
    ]
