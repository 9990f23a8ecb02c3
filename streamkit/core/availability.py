"""Availability: what a handler learns if the table does not answer its reads."""

from collections.abc import Awaitable
from typing import TypeVar

from streamkit.aws import PASSING, AwsError, code_of, trouble_of
from streamkit.errors import Unavailable

T = TypeVar("T")


async def available(call: Awaitable[T]) -> T:
    """Return the reply of a read.

    Raises:
        Unavailable: the table throttles or does not answer; the handler runs again.
    """
    try:
        return await call
    except AwsError as error:
        if trouble_of(error) in PASSING:
            raise Unavailable(f"the table cannot be read just now: {code_of(error)}") from error
        raise
