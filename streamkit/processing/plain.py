"""Plain writes: what is approximate, each item by one update of its own, after the commit.

In: actions whose position is committed. Out: nothing; what fails for good is lost, and counted in
the log. Nothing raises and nothing is parked, because nobody could tell whether an update whose
answer never came was applied: the SDK's own retries may double it, as `approximate` promises no
better.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from streamkit.actions import Action, render
from streamkit.aws import AwsError, Trouble, code_of, trouble_of
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger

AT_ONCE = 16
"""Updates in flight for one commit: a page of them takes as long as a few."""

log = get_logger("streamkit.plain")


async def write_plainly(
    dynamodb: Any, schemas: Mapping[str, TableSchema], actions: Sequence[Action]
) -> None:
    """Send each update once, a few at a time."""
    lost: Counter[str] = Counter()
    limiter = anyio.Semaphore(AT_ONCE)

    async def write(action: Action) -> None:
        (request,) = render(action, schemas[action.ref.table]).values()
        async with limiter:
            try:
                await dynamodb.update_item(**request)
            except AwsError as error:
                if trouble_of(error) is not Trouble.CONDITION:  # its item is not there: as declared
                    lost[code_of(error)] += 1

    async with anyio.create_task_group() as group:
        for action in actions:
            group.start_soon(write, action)
    for code, count in lost.items():
        log.warning("plain.lost", items=count, code=code)
