"""What the log says of deliveries that failed: the reason, and never what a sink might quote."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit.errors import ConfigurationError, PoisonChange, RetryableError
from streamkit.sinks.batching import Batcher
from streamkit.sinks.calls import refusal
from streamkit.sinks.endpoint import Answer, fate
from streamkit.sinks.sink import Delivery, Limits
from streamkit.testing.loop import VirtualClock, run_virtually

SENT = Delivery("k", "i", "g", "0" * 40, {}, datetime(2026, 3, 1, tzinfo=UTC))


def logged(error):
    """Return what is logged when a sink answers a delivery with this error."""

    class Failing:
        async def deliver(self, deliveries):
            return [error] * len(deliveries)

    @asynccontextmanager
    async def batcher():
        async with anyio.create_task_group() as group:
            yield Batcher("orders", Limits(), Failing(), group, VirtualClock())

    async def run():
        async with batcher() as made:
            with pytest.raises(type(error)):
                await made.deliver(SENT)

    with capture_logs() as lines:
        run_virtually(run)
    (line,) = [line for line in lines if line["event"] == "sink.failed"]
    return line


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (refusal("SQS", "AWS.SimpleQueueService.NonExistentQueue"), "NonExistentQueue"),
        (refusal("Kinesis", "AccessDeniedException"), "Kinesis answered AccessDeniedException"),
        (ConfigurationError("create it with `await sink.create_table()`"), "create it with"),
        (fate("hook", Answer(308)), "give the sink the new address"),
    ],
)
def test_a_failure_that_streamkit_words_itself_says_why(error, why):
    assert why in logged(error)["why"]


@pytest.mark.parametrize(
    "error", [OSError("ann@example.com"), RetryableError("ann"), PoisonChange("ann")]
)
def test_words_of_others_stay_out_of_the_log(error):
    line = logged(error)
    assert line["error"] == type(error).__name__
    assert "ann" not in str(line)
