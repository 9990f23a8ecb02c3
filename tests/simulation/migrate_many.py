"""A large migration under fire, compared item by item: `make migrate`, or `python -m` this module.

    python -m tests.simulation.migrate_many --items 200000 --mode rekey --seed 3

An old application writes, processes die and freeze, shards split and roll. In place, every item has
to be in the new shape in the end; of items that move, every copy has to equal its source. What the
application does not know of an item has to be there, too. In the modes `both` and `merge` old and new code write
both sides of few items, in many runs, and no write may be lost; in `merge` two items become one. It exits with 1 if an item is wrong.
"""

import argparse
import logging
import sys
import time
from functools import partial

import structlog

from streamkit.model.copies import COPY
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


MODES = {
    "in_place": (in_place, Order, wrong_in_place),
    "touch": (partial(in_place, "touch"), Order, wrong_in_place),
    "rekey": (rekey, OldOrder, wrong_copies),
}

SIDE_BY_SIDE = {
    "both": partial(both_shapes.app_of, both_shapes.moved_back),
    "merge": both_shapes.app_of_merge,
}

EVERY = [*MODES, *SIDE_BY_SIDE]

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


def run(mode, items, seed):
    """Run one migration; return what is wrong, and say how many items there are."""
    if mode in SIDE_BY_SIDE:
        return run_both(mode, seed)
    make, entity, wrong = MODES[mode]
    writers = Orders(old_then_new(entity, entity), items=items)
    ran = migrate(make(), "0001", writers, seed=seed, acts=200, processes=3, segments=64, page=200)
    said = ", ".join(f"{name} {count}" for name, count in sorted(ran.met.items()))
    print(f"{mode}: {ran.states[-1].phase}; {len(ran.raw())} items; {said}", flush=True)
    unknown = [item for item in ran.raw() if "order_id" not in item]
    return [*wrong(ran), *unknown]


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
