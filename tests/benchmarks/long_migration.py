"""A migration of many items: whether a process's memory stays flat. `make migration ITEMS=1000000`.

The engine is in another process, and so is none of its memory in the figure. One process does all
of the work: it scans, follows its own changes, and verifies. Its memory is looked at after a tenth
of the scan, and at the end: it must not have grown by more than 16 MB.
"""

import argparse
import asyncio
import sys
import time

from streamkit import App
from streamkit.aws import Aws, connect
from streamkit.migrate.operate.commands import begin
from streamkit.migrate.run.running import Runner
from streamkit.observe.logs import configure
from streamkit.observe.memory import used_bytes
from streamkit.progress.garbage import collect_seldom
from tests.benchmarks.processes import Remote, use_server
from tests.benchmarks.rows.d_migrations import Moved, Offer, ignore, moved, status_category
from tests.benchmarks.serving import TABLE, serving

MODES = {"in_place": (status_category, "done"), "rekey": (moved, "ready")}
GROWTH_BYTES = 16_000_000
LOOK_SECONDS = 1.0


async def migrated(aws: Aws, mode: str, items: int) -> tuple[str, float, float]:
    """Run a migration; return its phase, the memory after a tenth of the scan, and at the end."""
    app = App("deals", table=TABLE, entities=[Offer, Moved])
    app.on(ignore)
    app.migration("0001", Offer, mode=mode)(MODES[mode][0])  # type: ignore[call-overload]
    await begin(app, aws, app.migrations["0001"])
    collect_seldom()
    runner = Runner(app, aws, app.migrations["0001"])
    running, early = asyncio.create_task(runner.run()), 0.0
    while not running.done():
        await asyncio.wait([running], timeout=LOOK_SECONDS)
        if not early and runner.state.phase != "new":
            visited = (await runner.tallies.read(runner.state.pass_name)).scanned
            enough = visited >= items // 10 or runner.state.phase == "verifying"
            early = used_bytes() if enough else 0.0
    return running.result().phase, early, used_bytes()


async def run(url: str, mode: str, items: int) -> tuple[str, float, float]:
    """Run a migration of a table behind a URL; see `migrated`."""
    configure("json", "error")
    use_server(url)
    async with connect() as aws:
        return await migrated(aws, mode, items)


def main() -> int:
    """Run it with the number that the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--mode", choices=MODES, default="in_place")
    options = parser.parse_args()
    with Remote(serving, 1, 0) as server:
        server.call("put_deals", options.items)
        began = time.monotonic()
        phase, early, late = asyncio.run(run(server.call("address"), options.mode, options.items))
    print(
        f"{options.items:,} items, {options.mode}: {phase} in {time.monotonic() - began:,.0f} s;"
        f" memory {late / 1e6:,.1f} MB, {(late - early) / 1e6:+,.1f} MB since the first tenth"
    )
    return int(phase != MODES[options.mode][1] or late - early > GROWTH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
