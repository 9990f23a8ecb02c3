"""`streamkit local`: the embedded engine as a server, until a signal."""

import random

import anyio
import typer

from streamkit.cli.printing import say
from streamkit.cli.signals import graceful
from streamkit.local.engine import Engine
from streamkit.local.server import serve


async def serve_engine(*, host: str, port: int, shards: int, seed: int | None) -> None:
    """Serve a new, empty engine, and print how to reach it.

    Args:
        host: the address to listen on.
        port: the port; 0 lets the system choose.
        shards: the number of shards of a new stream.
        seed: makes shard ids, sequence numbers and event ids repeatable.
    """
    stop = anyio.Event()
    engine = Engine(shards=shards, rng=None if seed is None else random.Random(seed))
    try:
        server = await serve(engine, host, port)
    except OSError as error:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {error.strerror}") from None
    async with server:
        with graceful(stop.set):
            say(f"DynamoDB and DynamoDB Streams in memory at {server.url}")
            say(f"export AWS_ENDPOINT_URL_DYNAMODB={server.url}")
            say(f"export AWS_ENDPOINT_URL_DYNAMODB_STREAMS={server.url}")
            say("export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1")
            say("export AWS_ACCESS_KEY_ID=local")
            say("export AWS_SECRET_ACCESS_KEY=local")
            await stop.wait()
