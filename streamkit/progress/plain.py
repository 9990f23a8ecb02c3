"""Plain writes: approximate effects are written after the commit, one update per item.

In: actions whose position is committed. Out: nothing. An update that fails for good is lost, and is
counted in the log. Nothing raises and nothing is parked: if the answer to an update never came, it
is not known whether it was applied. The SDK's own retries may apply an update twice; `approximate`
promises no better.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Action, render

AT_ONCE = 16
"""Updates in flight for one commit: a page of updates takes as long as a few."""

log = get_logger("streamkit.plain")


async def write_plainly(
    dynamodb: Any, schemas: Mapping[str, TableSchema], actions: Sequence[Action]
) -> None:
    """Send each update once, at most `AT_ONCE` at a time."""
    lost: Counter[str] = Counter()
    limiter = anyio.Semaphore(AT_ONCE)

    async def write(action: Action) -> None:
        (request,) = render(action, schemas[action.ref.table]).values()
        async with limiter:
            try:
                await dynamodb.update_item(**request)
            except AwsError as error:
                if trouble_of(error) is not ErrorKind.CONDITION:  # the item is gone: allowed
                    lost[code_of(error)] += 1

    async with anyio.create_task_group() as group:
        for action in actions:
            group.start_soon(write, action)
    for code, count in lost.items():
        log.warning("plain.lost", items=count, code=code)
