"""A large migration under fire, compared item by item: `make migrate`, or `python -m` this module.

    python -m tests.simulation.migrate_many --items 200000 --mode rekey --seed 3

An old application writes, processes die and freeze, shards split and roll. An operator pauses the
migration, rolls it back in the middle and applies it again. In place, every item has
to be in the new shape in the end; of items that move, every copy has to equal its source. What the
application does not know of an item has to be there, too. In the modes `moved` and `back` the items go through the
switch, to the end or back from there, and are compared with what was written. In the modes `both` and `merge` old and new code write
both sides of few items, in many runs, and no write may be lost; in `merge` two items become one. It exits with 1 if an item is wrong.
"""

import argparse
import logging
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import structlog

from streamkit.app import App
from streamkit.migrate.book.state import RESTING
from streamkit.migrate.operate import steps
from streamkit.model.copies import COPY
from streamkit.testing.loop import VirtualClock
from streamkit.testing.migrations import migrate
from tests.simulation import both_shapes
from tests.simulation.migrating import OldOrder, Order, Orders, in_place, old_then_new, rekey


def wrong_in_place(ran):
    """Return the numbers of the orders that are not in the new shape."""
    return [
        order.order_id
        for order in ran.items(Order)
        if order.status_day != f"{order.status}#{order.day}"
    ]


def wrong_copies(ran):
    """Return the numbers of the orders that have no copy, or another one, and copies of none."""

    def by_key(entity):
        return {(o.user, o.order_id): o.status for o in ran.items(entity)}

    old, new = by_key(OldOrder), by_key(Order)
    unmarked = [item["order_id"]["S"] for item in ran.raw(Order) if COPY not in item]
    return [number for _, number in dict(old.items() ^ new.items())] + unmarked


class Remembered:
    """An application that knows what it has written: old code, then new code after the switch.

    What has to stand there in the end is computed from its writes alone, without streamkit.
    """

    def __init__(self, items):
        where = old_then_new(both_shapes.OldOrder, both_shapes.Order)
        self.orders = Orders(where, items=items)
        self.there = {}

    async def open(self, aws, schema, rng):
        await self.orders.open(_Noting(aws, self.there), schema, rng)

    async def act(self, aws, schema, rng, phase):
        await self.orders.act(_Noting(aws, self.there), schema, rng, phase)


class _Noting:
    """A client that notes each write that was acknowledged, by the number of the order."""

    def __init__(self, aws, there):
        self.dynamodb, self._aws, self._there = self, aws, there

    async def get_item(self, **request):
        return await self._aws.dynamodb.get_item(**request)

    async def put_item(self, **request):
        await self._aws.dynamodb.put_item(**request)
        self._there[_number(request["Item"])] = fields(request["Item"])

    async def delete_item(self, **request):
        await self._aws.dynamodb.delete_item(**request)
        self._there.pop(_number(request["Key"]), None)

    async def update_item(self, **request):
        await self._aws.dynamodb.update_item(**request)
        (name,) = request["ExpressionAttributeNames"].values()
        (value,) = request["ExpressionAttributeValues"].values()
        self._there[_number(request["Key"])][name] = value


@dataclass
class Operated:
    """An application, and an operator who pauses its migration and rolls it back in the middle.

    `did` says in which phase each of them came.
    """

    app: App
    application: Orders | Remembered
    did: dict[str, str] = field(default_factory=dict)
    _acts: int = 0

    async def open(self, aws, schema, rng):
        await self.application.open(aws, schema, rng)

    async def act(self, aws, schema, rng, phase):
        await self.application.act(aws, schema, rng, phase)
        command = AMID.get(self._acts)
        if command is not None and phase not in RESTING:
            await command(self.app, aws, "0001", clock=VirtualClock())
            self.did[command.__name__] = phase
        self._acts += command is None or phase not in RESTING


AMID = {20: steps.pause, 30: steps.resume, 45: steps.rollback}
"""What an operator does, after which number of the application's acts."""

AGAIN = ("apply", "apply")
"""The migration is rolled back in the middle, and applied once more."""


def _number(item):
    return item["SK"]["S"].rpartition("#")[2]


def fields(item):
    """Return the attributes of an order that are the same on both sides."""
    return {name: item[name] for name in ("status", "note", "unknown") if name in item}


def wrong_moved(entity, wanted, ran):
    """Return the numbers of the orders that are not as they were written, at the one right place."""
    items = ran.raw(entity)
    there = {_number(item): fields(item) for item in items}
    wrong = [name for name in there | wanted if there.get(name) != wanted.get(name)]
    (other,) = {both_shapes.OldOrder, both_shapes.Order} - {entity}
    return wrong + [_number(item) for item in (*ran.raw(other), *(i for i in items if COPY in i))]


MODES = {
    "in_place": (in_place, Order, wrong_in_place),
    "touch": (partial(in_place, "touch"), Order, wrong_in_place),
    "rekey": (rekey, OldOrder, wrong_copies),
}

SIDE_BY_SIDE = {
    "both": partial(both_shapes.app_of, both_shapes.moved_back),
    "merge": both_shapes.app_of_merge,
}

WHOLE_WAYS = {
    "moved": ("contract", both_shapes.Order),
    "back": ("rollback", both_shapes.OldOrder),
}
"""Moves through the switch, to the end or back from there: the last step, and what remains."""

EVERY = [*MODES, *WHOLE_WAYS, *SIDE_BY_SIDE]

RUNS = 10
"""Runs of old and new code side by side, each with another seed, to the end and back."""


def run_both(mode, seed):
    """Let old and new code write side by side; return the writes that were lost."""
    found = []
    for one in range(seed, seed + RUNS):
        for ends, side in (("contract", "new"), ("rollback", "old")):
            site, _ = both_shapes.run(SIDE_BY_SIDE[mode](), seed=one, ends=ends)
            found += site.ledger.lost(side).items()
            said = ", ".join(f"{name} {count}" for name, count in sorted(site.ledger.kinds.items()))
            print(f"{mode}: seed {one}, {ends}; {said}", flush=True)
    return found


def run_whole(mode, app, items, **settings):
    """Move orders through the switch, to the end or back; return the run, and which are wrong."""
    end, entity = WHOLE_WAYS[mode]
    writers = Remembered(items)
    ran = run_operated(app, writers, (*AGAIN, "switch", end), **settings)
    return ran, wrong_moved(entity, writers.there, ran)


def run_operated(app, writers, commands, **settings):
    """Run a migration that an operator pauses and rolls back in the middle; return the run.

    Raises:
        AssertionError: the migration was ready before it came to that.
    """
    operated = Operated(app, writers)
    ran = migrate(app, "0001", operated, steps=commands, **settings)
    assert ran.states[0].phase == "rolled back"
    assert list(operated.did) == [command.__name__ for command in AMID.values()]
    ran.met |= {f"{name} in {phase}": 1 for name, phase in operated.did.items()}
    return ran


def run(mode, items, seed):
    """Run one migration; return what is wrong, and say how many items there are."""
    if mode in SIDE_BY_SIDE:
        return run_both(mode, seed)
    settings = {"seed": seed, "acts": 200, "processes": 3, "segments": 64, "page": 200}
    if mode in WHOLE_WAYS:
        ran, found = run_whole(mode, both_shapes.app_of(both_shapes.moved_back), items, **settings)
    else:
        make, entity, wrong = MODES[mode]
        writers = Orders(old_then_new(entity, entity), items=items)
        ran = run_operated(make(), writers, AGAIN, **settings)
        found = wrong(ran)
    said = ", ".join(f"{name} {count}" for name, count in sorted(ran.met.items()))
    print(f"{mode}: {ran.states[-1].phase}; {len(ran.raw())} items; {said}", flush=True)
    unknown = [item for item in ran.raw() if "order_id" not in item]
    return [*found, *unknown]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--mode", choices=EVERY, nargs="*", default=EVERY)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failed = False
    for mode in options.mode:
        begin = time.monotonic()
        found = run(mode, options.items, options.seed)
        print(f"{mode}: {len(found)} wrong, {time.monotonic() - begin:.0f} s", flush=True)
        failed = failed or bool(found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
