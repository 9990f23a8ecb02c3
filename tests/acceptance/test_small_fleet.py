"""A small fleet of processes: one is killed under writes, and everything is counted once."""

import signal
from contextlib import ExitStack

ORDERS = 120


def test_three_workers_count_every_order_once_although_one_is_killed(shop):
    with ExitStack() as stack:
        workers = [stack.enter_context(shop.start("worker", "shop")) for _ in range(3)]
        for worker in workers:
            worker.wait_for("worker.started")
        for number in range(ORDERS):
            shop.put(number, "A")
            if number == ORDERS // 2:
                owners = {s["owner"] for s in shop.json("status", "shop")["shards"]}
                killed = next(w for w in workers if any(f"/{w.pid}/" in (o or "") for o in owners))
                killed.signal(signal.SIGKILL)
        shop.until(lambda: shop.count("A") == ORDERS)
        assert {shop.journal(number) for number in range(ORDERS)} == {"A"}
        found = shop.json("aggregate", "verify", "shop", "PerStatus", "--patience", "5")
        assert found["different"] == []
        for worker in workers:
            if worker is not killed:
                worker.signal(signal.SIGTERM)
                assert worker.exit_code() == 0
