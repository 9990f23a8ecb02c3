"""The watchdog of one worker: a worker that cannot read the stream does not keep its shards.

A worker's heartbeat goes to the table and says nothing about the stream, which is another service
with another address. In: how long no page was read. Out: the state `unfit`, in which a worker gives
all shards to other workers and takes none, until the stream answers it again.
"""

import anyio

from streamkit.aws import Aws
from streamkit.fleet.coordinator import Coordinator
from streamkit.observe.logger import get_logger
from streamkit.worker.shardset import ShardSet

log = get_logger("streamkit.worker")

_PROBE_SECONDS = 5.0
_LOOKS = 30
"""How often a worker checks how long no page was read, within the time that this may last."""


async def watch_stream(
    shards: ShardSet, coordinator: Coordinator, aws: Aws, deadline_seconds: float
) -> None:
    """Watch for ever; every read may fail for `deadline_seconds` before the worker is unfit."""
    pause = max(deadline_seconds / _LOOKS, 1.0)
    while True:
        unfit = coordinator.me.state == "unfit"
        await anyio.sleep(_PROBE_SECONDS if unfit else pause)
        if shards.silence < deadline_seconds and not unfit:
            continue
        answers = await _answers(shards, aws)
        if answers:
            shards.note_read()
        if answers and unfit:
            log.info("worker.fit")
            coordinator.heartbeat.say(state="joining")
        elif answers:  # it throttles, or serves other readers first: no reason to give shards up
            log.warning("stream.silent", seconds=round(deadline_seconds))
        elif not unfit:
            log.error("worker.unfit", seconds=round(deadline_seconds))
            coordinator.heartbeat.say(state="unfit")
            shards.give_all()


async def _answers(shards: ShardSet, aws: Aws) -> bool:
    """Return whether the stream answers any call; a refusal is an answer, too."""
    arn = shards.tables.table.stream_arn or ""
    with anyio.move_on_after(_PROBE_SECONDS):
        return await aws.stream_answers(arn)
    return False
