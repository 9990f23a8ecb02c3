"""`streamkit local`: the embedded engine as a server, until a signal."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import typer

from streamkit.cli.printing import say, tell
from streamkit.cli.signals import graceful
from streamkit.local.engine import Engine
from streamkit.local.kept import Kept, WrongData
from streamkit.local.server import Server, serve


@asynccontextmanager
async def engine_served(
    host: str, port: int, *, shards: int = 1, seed: int | None = None, data: Path | None = None
) -> AsyncIterator[Server]:
    """Serve an engine: a new one, or the one that is kept in a folder.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        shards: the number of shards of a new stream.
        seed: makes shard ids, sequence numbers and event ids repeatable.
        data: keeps all tables in this folder.
    """

    def new() -> Engine:
        return Engine(shards=shards, rng=None if seed is None else random.Random(seed))

    try:
        kept = None if data is None else Kept.open(data, new)
        server = await serve(new() if kept is None else kept.engine, host, port)
    except WrongData as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {error.strerror}") from None
    async with server, anyio.create_task_group() as group:
        if kept is not None:
            group.start_soon(kept.keep, lambda: server.changes, tell)
        yield server
        group.cancel_scope.cancel()


def environment(url: str) -> dict[str, str]:
    """Return the environment variables by which any AWS SDK reaches an engine."""
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }


async def serve_engine(
    *, host: str, port: int, shards: int, seed: int | None, data: Path | None
) -> None:
    """Serve an engine, and print how to reach it; the arguments are those of `engine_served`."""
    stop = anyio.Event()
    async with engine_served(host, port, shards=shards, seed=seed, data=data) as server:
        with graceful(stop.set):
            kept = "in memory" if data is None else f"kept in {data}"
            say(f"DynamoDB and DynamoDB Streams {kept} at {server.url}")
            say_exports(server.url)
            await stop.wait()


def say_exports(url: str) -> None:
    """Print what to paste into another terminal."""
    found = environment(url)
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"):
        say(f"export {name}={found.pop(name)}")
    region, default, *secrets = (f"{name}={value}" for name, value in found.items())
    say(f"export {region} {default}")
    for secret in secrets:
        say(f"export {secret}")
