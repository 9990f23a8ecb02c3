"""A small fleet of processes: one is killed under writes, and everything is counted once."""

import signal
from contextlib import ExitStack

ORDERS = 120


def _owner_of_a_shard(shop, workers):
    owners = [shard["owner"] or "" for shard in shop.json("status", "shop")["shards"]]
    return next((w for w in workers if any(f"/{w.pid}/" in owner for owner in owners)), None)


def test_three_workers_count_every_order_once_although_one_is_killed(shop):
    shop.hasten()
    with ExitStack() as stack:
        workers = [stack.enter_context(shop.start("worker", "shop")) for _ in range(3)]
        for worker in workers:
            worker.wait_for("worker.started")
        for number in range(ORDERS):
            shop.put(number, "A")
            if number == ORDERS // 2:
                # A worker that has started leases its first shard when it has heard of the others.
                killed = shop.until(lambda: _owner_of_a_shard(shop, workers))
                killed.signal(signal.SIGKILL)
        shop.until(lambda: shop.count("A") == ORDERS)
        assert {shop.journal(number) for number in range(ORDERS)} == {"A"}
        found = shop.json("aggregate", "verify", "shop", "PerStatus", "--patience", "5")
        assert found["different"] == []
        for worker in workers:
            if worker is not killed:
                worker.signal(signal.SIGTERM)
                assert worker.exit_code() == 0
