"""The acceptance suite in an account of AWS: `make aws SPEND=1`, for those who ask for it.

It says first what it can cost at most: AWS itself refuses more, because each table has a greatest
throughput, and the time is limited. All names begin with a prefix of this run, and everything that
has it is deleted at the end, whatever has happened. With `--endpoint` it runs in the same way
against the engine, over HTTP.
"""

import argparse
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from streamkit.observe.pricing import DOLLARS

NAMES = "streamkit-suite-"
VARIABLE = "AWS_SUITE_PREFIX"
"""In the environment of the tests: the prefix of a run."""
MINUTES = 40
THROUGHPUT = {"MaxReadRequestUnits": 400, "MaxWriteRequestUnits": 100}
"""Of each table, and of its indexes."""
_TABLES_AT_ONCE = 2
_POLLS_A_SECOND = 40
"""Of all shards, workers and commands together: more than the tests make."""
FILES = tuple(
    f"tests/acceptance/test_{name}.py"
    for name in (
        *("small_fleet", "cli_worker", "cli_parked", "cli_explain", "cli_aggregates"),
        *("cli_consumers", "cli_cost", "cli_verdicts", "health", "index_keys"),
    )
)
EASY = {"STREAMKIT_POLL_FLOOR": "0.25", "STREAMKIT_HEARTBEAT": "1", "STREAMKIT_LEASE": "3"}
"""The service allows five reads of a shard a second, and answers later than the engine."""


def prefix() -> str:
    """Return the prefix of this run in an account; empty where the tests have an engine."""
    return os.environ.get(VARIABLE, "")


def bound(minutes: float = MINUTES) -> float:
    """Return the dollars that a run costs at most."""
    each = (
        THROUGHPUT["MaxWriteRequestUnits"] * DOLLARS["write"]
        + THROUGHPUT["MaxReadRequestUnits"] * DOLLARS["read"]
    )
    return minutes * 60 * (_TABLES_AT_ONCE * each + _POLLS_A_SECOND * DOLLARS["stream"])


def tables(dynamodb: Any, beginning: str) -> Iterator[str]:
    """Yield the names of tables that begin so."""
    for page in dynamodb.get_paginator("list_tables").paginate():
        yield from (name for name in page["TableNames"] if name.startswith(beginning))


def clean(dynamodb: Any, beginning: str) -> list[str]:
    """Delete all tables whose names begin so; return those that are still there."""
    if not beginning.startswith(NAMES):
        raise ValueError(f"{beginning!r} is no prefix of a run")
    for name in list(tables(dynamodb, beginning)):
        try:
            dynamodb.get_waiter("table_exists").wait(TableName=name)
            dynamodb.delete_table(TableName=name)
            dynamodb.get_waiter("table_not_exists").wait(TableName=name)
        except (BotoCoreError, ClientError) as error:
            print(f"{name} could not be deleted: {error}")
    return list(tables(dynamodb, beginning))


def run(mine: str, files: Sequence[str], environment: dict[str, str]) -> int:
    """Run the tests for as long as they may take; return pytest's code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(
            command, env={**environment, VARIABLE: mine}, timeout=MINUTES * 60, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"the tests were stopped after {MINUTES} minutes")
        return 1
    return done.returncode


def main() -> int:
    """Say what it costs, run, and delete."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--spend", type=float, help="dollars that it may cost; needed in an account")
    asked.add_argument("--endpoint", help="the engine's address, instead of an account")
    asked.add_argument("--clean", action="store_true", help="only delete what runs have left")
    asked.add_argument("files", nargs="*", help="these tests instead of all")
    given = asked.parse_args()
    environment = dict(os.environ)
    if given.endpoint:
        for name in ("DYNAMODB", "DYNAMODB_STREAMS"):
            environment[f"AWS_ENDPOINT_URL_{name}"] = given.endpoint
        keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        environment |= {**keys, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(environment)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region:
        os.environ["AWS_DEFAULT_REGION"] = environment["AWS_REGION"] = region
    dynamodb = boto3.client("dynamodb", endpoint_url=given.endpoint)
    if given.clean:
        return bool(clean(dynamodb, NAMES))
    print(
        f"it costs at most ${bound():.2f}: {MINUTES} minutes, {THROUGHPUT} for each table",
        flush=True,
    )
    if not given.endpoint and (given.spend or 0) < bound():
        print(f"say that it may: make aws SPEND={bound():.2f}")
        return 2
    mine = f"{NAMES}{secrets.token_hex(4)}-"
    print(f"all names begin with {mine}", flush=True)
    try:
        code = run(mine, given.files or FILES, environment)
    finally:
        left = clean(dynamodb, mine)
        print(f"left behind: {', '.join(left)}" if left else "everything is deleted", flush=True)
    return code or bool(left)


if __name__ == "__main__":
    sys.exit(main())
