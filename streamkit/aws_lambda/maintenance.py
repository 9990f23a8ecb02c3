"""Continue parked queues in a deployment that has no worker.

In: an environment, and seconds. Out: counts. Parked changes that are due are retried, and large
audiences are served further, some queues at a time; when the time is over, each stays as its last
transaction left it. Two runs at the same time do no harm.

The ledgers of builds are deleted when they are over. A paused consumer does nothing.

On failure: a table that throttles delays a queue until the next run; a broken queue is left to a
person, and the other queues continue. Missing permissions end the run.
"""

from collections import defaultdict, deque
from typing import Any

import anyio

from streamkit.aws import AwsError, code_of, trouble_of
from streamkit.aws_lambda.environment import Environment, check_version
from streamkit.core.parked.queues import parked_queues
from streamkit.errors import InvariantError, RetryableError
from streamkit.fleet.hosting import LAMBDA, Hosted, look
from streamkit.kinds.aggregate.sweep import Sweeping
from streamkit.observe.logger import get_logger
from streamkit.progress.transaction import SENT_AGAIN
from streamkit.worker.automatic_retries import AT_ONCE
from streamkit.worker.redriver import QueueReport, Redriver

log = get_logger("streamkit.lambda")

_PAUSE_SECONDS = 0.05
"""The shortest wait of a queue that is served further, if no other queue is due."""


class _Round:
    """One run over a handler's queues that are due."""

    def __init__(self, redriver: Redriver, queues: deque[str], counts: dict[str, int]) -> None:
        self._redriver, self._queues, self._counts = redriver, queues, counts

    async def run(self) -> None:
        """Retry queues until none is left."""
        while self._queues:
            queue = self._queues.popleft()
            report = await self._try(queue)
            if report is None:
                continue
            self._note(report)
            if report.serving:
                pause = (report.due or 0.0) - self._redriver.clock.time()
                await anyio.sleep(max(pause, 0.0 if self._queues else _PAUSE_SECONDS))
                self._queues.append(queue)

    async def _try(self, queue: str) -> QueueReport | None:
        try:
            return await self._redriver.redrive(queue)
        except InvariantError:
            log.exception("queue.broken", queue=queue)
        except (*AwsError, RetryableError) as error:
            if isinstance(error, AwsError) and trouble_of(error) not in SENT_AGAIN:
                raise
            code = code_of(error)
            log.often("queue.delayed", level="warning", by=code, queue=queue, code=code)
        return None

    def _note(self, report: QueueReport) -> None:
        self._counts["done"] += report.done
        self._counts["failed"] += report.failed
        if report.empty and report.done:
            known: dict[str, Any] = {
                "queue": report.queue,
                "handler": report.handler,
                "done": report.done,
            }
            log.often("queue.lifted", by=report.handler, **known)
        elif report.failed and report.stuck:
            kind = report.failure.kind if report.failure else ""
            known = {"queue": report.queue, "handler": report.handler, "error": kind}
            log.often("queue.stuck", level="error", by=report.handler, **known)


async def maintain(environment: Environment, seconds: float = 60.0) -> dict[str, int]:
    """Continue all parked queues that are due, for some seconds.

    Returns:
        How many queues there are (`queues`) and how many of them are `stuck`; how many changes left
        them, as `done`, and how many `failed` again.

    Raises:
        ConfigurationError: an aggregate is being rebuilt with other code than this.
    """
    counts = {"queues": 0, "stuck": 0, "done": 0, "failed": 0}
    with anyio.move_on_after(seconds):
        hosted = await look(environment.store)
        if hosted.paused:
            return counts
        check_version(environment, hosted)
        queues = await parked_queues(environment.store)
        counts |= {"queues": len(queues), "stuck": sum(queue.stuck for queue in queues)}
        environment.meters.parked.set(counts["queues"])
        environment.meters.stuck.set(counts["stuck"])
        now = environment.clock.time()
        due: defaultdict[str, deque[str]] = defaultdict(deque)
        for queue in queues:
            if not queue.stuck and queue.due <= now:
                due[queue.handler].append(queue.name)
        redriver = _redriver(environment)
        async with anyio.create_task_group() as group:
            for waiting in due.values():  # a slow handler delays no other handler
                some = _Round(redriver, waiting, counts)
                for _ in range(min(AT_ONCE, len(waiting))):
                    group.start_soon(some.run)
        await _sweep(environment, hosted)
    return counts


def _redriver(environment: Environment) -> Redriver:
    """Make the redriver that retries parked changes that are due."""
    return Redriver(
        environment.app,
        environment.machine,
        environment.tables,
        environment.dispatcher.tools,
        environment.dispatcher.channels,
        automatic=True,
    )


async def _sweep(environment: Environment, hosted: Hosted) -> None:
    """Delete the ledgers of builds that no process reads any more."""
    left = any(build.state == "counting" or build.past for build in hosted.builds.values())
    if left and hosted.host == LAMBDA:
        await Sweeping(environment.store, environment.clock, environment.rng).once()
