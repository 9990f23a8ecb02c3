"""Calls of a client on botocore's own way, to compare with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aiobotocore.client import AioBaseClient


@contextmanager
def botocores_way() -> Iterator[None]:
    """Let all calls go botocore's own way, as they do where a tool traces them."""
    call = AioBaseClient._make_api_call

    async def traced(client: Any, operation: str, params: dict[str, Any]) -> Any:
        return await call(client, operation, params)

    with mock.patch.object(AioBaseClient, "_make_api_call", traced):
        yield
