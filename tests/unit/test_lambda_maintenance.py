"""The scheduled function: what it goes on after, and what it fails with, so that an alarm sees it."""

from collections import deque
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from streamkit.aws_lambda.maintenance import _Round


def round_of(code):
    """A round over two queues whose redrives AWS refuses; the queues that were begun."""
    begun = []

    async def redrive(queue):
        begun.append(queue)
        raise ClientError({"Error": {"Code": code}}, "TransactWriteItems")

    return _Round(SimpleNamespace(redrive=redrive), deque(["a", "b"]), {}), begun


async def test_throttled_queues_are_left_for_the_next_round():
    subject, begun = round_of("ThrottlingException")
    await subject.run()
    assert begun == ["a", "b"]


async def test_what_may_not_be_done_fails_the_function():
    subject, _ = round_of("AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        await subject.run()
