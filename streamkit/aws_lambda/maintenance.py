"""Continue parked queues (called lanes in the code) in a deployment that has no worker.

In: an environment, and seconds. Out: counts. Parked changes that are due are retried, and large
audiences are served further, some queues at a time; when the time is over, each stays as its last
transaction left it. Two runs at the same time do no harm.

The ledgers of builds are deleted when they are over. A paused consumer does nothing.

On failure: a table that throttles delays a queue until the next run; a broken queue is left to a
person, and the others continue. Missing permissions end the run.
"""

from collections import defaultdict, deque
from typing import Any

import anyio

from streamkit.aws import AwsError, code_of, trouble_of
from streamkit.aws_lambda.environment import Environment, check_version
from streamkit.core.parked.queues import held_lanes
from streamkit.errors import InvariantError, RetryableError
from streamkit.fleet.hosting import LAMBDA, Hosted, look
from streamkit.observe.logger import get_logger
from streamkit.worker.automatic_retries import AT_ONCE, PASSING
from streamkit.worker.redriver import LaneReport, Redriver

log = get_logger("streamkit.lambda")

_PAUSE_SECONDS = 0.05
"""The least wait of a queue that is served further, if no other one is due."""


class _Round:
    """One run over a handler's queues that are due."""

    def __init__(self, redriver: Redriver, lanes: deque[str], counts: dict[str, int]) -> None:
        self._redriver, self._lanes, self._counts = redriver, lanes, counts

    async def run(self) -> None:
        """Retry queues until none is left."""
        while self._lanes:
            lane = self._lanes.popleft()
            report = await self._try(lane)
            if report is None:
                continue
            self._note(report)
            if report.serving:
                pause = (report.due or 0.0) - self._redriver.clock.time()
                await anyio.sleep(max(pause, 0.0 if self._lanes else _PAUSE_SECONDS))
                self._lanes.append(lane)

    async def _try(self, lane: str) -> LaneReport | None:
        try:
            return await self._redriver.redrive(lane)
        except InvariantError:
            log.exception("lane.broken", lane=lane)
        except (*AwsError, RetryableError) as error:
            if isinstance(error, AwsError) and trouble_of(error) not in PASSING:
                raise
            code = code_of(error)
            log.often("lane.delayed", level="warning", by=code, lane=lane, code=code)
        return None

    def _note(self, report: LaneReport) -> None:
        self._counts["done"] += report.done
        self._counts["failed"] += report.failed
        if report.empty and report.done:
            known: dict[str, Any] = {
                "lane": report.lane,
                "handler": report.handler,
                "done": report.done,
            }
            log.often("lane.lifted", by=report.handler, **known)
        elif report.failed and report.stuck:
            kind = report.failure.kind if report.failure else ""
            known = {"lane": report.lane, "handler": report.handler, "error": kind}
            log.often("lane.stuck", level="error", by=report.handler, **known)


async def maintain(environment: Environment, seconds: float = 60.0) -> dict[str, int]:
    """Continue all parked queues that are due, for some seconds.

    Returns:
        How many `lanes` (queues) there are and how many of them are `stuck`; how many changes left
        them, as `done`, and how many `failed` again.

    Raises:
        ConfigurationError: an aggregate is being rebuilt with other code than this.
    """
    counts = {"lanes": 0, "stuck": 0, "done": 0, "failed": 0}
    with anyio.move_on_after(seconds):
        hosted = await look(environment.store)
        if hosted.paused:
            return counts
        check_version(environment, hosted)
        lanes = await held_lanes(environment.store)
        counts |= {"lanes": len(lanes), "stuck": sum(lane.stuck for lane in lanes)}
        environment.meters.parked.set(counts["lanes"])
        environment.meters.stuck.set(counts["stuck"])
        now = environment.clock.time()
        due: defaultdict[str, deque[str]] = defaultdict(deque)
        for lane in lanes:
            if not lane.stuck and lane.due <= now:
                due[lane.handler].append(lane.name)
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
        environment.around,
        environment.dispatcher.tools,
        environment.dispatcher.channels,
        automatic=True,
    )


async def _sweep(environment: Environment, hosted: Hosted) -> None:
    """Delete the ledgers of builds that no process reads any more."""
    left = any(build.state == "counting" or build.past for build in hosted.builds.values())
    if left and hosted.host == LAMBDA:
        # Functions of a mapping start faster without this import.
        from streamkit.kinds.aggregate.sweep import Sweeping

        await Sweeping(environment.store, environment.clock, environment.rng).once()
