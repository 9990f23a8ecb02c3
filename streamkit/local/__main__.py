"""`python -m streamkit.local` runs the engine as a process of its own.

It prints the endpoint URL as its first line, so that a program that started it with port 0 learns
the port. It serves until SIGINT or SIGTERM. Nothing is kept afterwards.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence

from streamkit.local.engine import Engine
from streamkit.local.server import serve


async def run(
    *, host: str = "127.0.0.1", port: int = 0, shards: int = 1, seed: int | None = None
) -> None:
    """Serve a new engine until a stop signal arrives.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        shards: how many shards a new stream has.
        seed: makes shard ids, sequence numbers and event ids repeatable.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    engine = Engine(shards=shards, rng=None if seed is None else random.Random(seed))
    async with await serve(engine, host, port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="streamkit.local", description="A local DynamoDB.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--shards", type=int, default=1, help="of a new stream")
    parser.add_argument("--seed", type=int, help="makes ids and numbers repeatable")
    asyncio.run(run(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()
