"""Fetch many items: by their keys, or page by page.

In: keys, each once. Out: the items that exist, in wire form and in any order. On failure: what the
client raises; if `patient`, calls that are throttled are repeated.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from streamkit.aws import patiently
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ItemRef, item_ref

_BATCH_GET = 100
"""The most keys that one `BatchGetItem` takes."""


async def pages_of(
    call: Callable[..., Awaitable[dict[str, Any]]], **request: Any
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the replies of a scan or a query, page by page; calls that are throttled are repeated.

    Args:
        call: the method of the client.
        request: its arguments.
    """
    while True:
        reply = await patiently(partial(call, **request))
        yield reply
        if "LastEvaluatedKey" not in reply:
            return
        request["ExclusiveStartKey"] = reply["LastEvaluatedKey"]


async def fetch_by_ref(
    dynamodb: Any, schema: TableSchema, keys: Iterable[Mapping[str, Any]]
) -> dict[ItemRef, dict[str, Any]]:
    """Read the items with these keys, each given once, strongly consistent, by their refs."""
    wanted = [item_ref(schema, key).key(schema) for key in keys]
    found = await fetch_all(dynamodb, schema.name, wanted)
    return {item_ref(schema, item): item for item in found}


async def fetch_all(
    dynamodb: Any,
    table: str,
    keys: Sequence[dict[str, Any]],
    *,
    patient: bool = True,
    fresh: bool = True,
) -> list[dict[str, Any]]:
    """Read many items by key, in wire form; missing ones are left out.

    Args:
        dynamodb: the client.
        table: its name.
        keys: the items' keys, each once.
        patient: repeat a call that is throttled, instead of raising.
        fresh: read strongly consistent, for twice the price.
    """
    found: list[dict[str, Any]] = []
    left = list(keys)
    while left:
        request = {table: {"Keys": left[:_BATCH_GET], "ConsistentRead": fresh}}
        call = partial(dynamodb.batch_get_item, RequestItems=request)
        reply = await (patiently(call) if patient else call())
        found += reply["Responses"].get(table, [])
        again = reply.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
        if len(again) == len(left[:_BATCH_GET]):
            await anyio.sleep(0.2)  # all keys were throttled: the SDK has already backed off
        left = again + left[_BATCH_GET:]
    return found
