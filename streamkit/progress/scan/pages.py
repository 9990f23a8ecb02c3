"""Pages: the one loop that reads a table page by page, and a scan by a single process.

In: the call that reads, the table, and a visit, which processes a page and then moves the segment
behind it. Out: every page is visited; a segment that was not moved is read again from where it was.
On failure: an error of the call or of the visit ends the scan.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from streamkit.aws import patiently
from streamkit.progress.activity import each_of
from streamkit.progress.scan.segment import Segment

PAGE_ITEMS = 1000
"""Items of one page where the number does not matter; DynamoDB ends a page at 1 MB anyway."""

Reply = dict[str, Any]
"""The reply of `Scan`."""
S = TypeVar("S", bound=Segment)
Visit = Callable[[S, Reply], Awaitable[None]]
"""A function that processes a page, and moves the segment to the page's last key."""


@dataclass(frozen=True)
class ScanPages:
    """How a table is read; `more` is what the `Scan` asks for beside the place.

    `call` is a client's `scan`, or one that waits for its turn: the caller sets the rate of a scan.
    """

    call: Callable[..., Awaitable[Reply]]
    table: str
    limit: int = PAGE_ITEMS
    more: Mapping[str, Any] = field(default_factory=dict)

    async def visit(self, segment: S, visit: Visit[S]) -> None:
        """Visit the pages of a segment until it is finished, or must be given back."""
        while not (segment.finished or segment.stopping.is_set()):
            request = {"TableName": self.table, "Limit": self.limit, **segment.request, **self.more}
            await visit(segment, await self.call(**request))

    async def visit_all(
        self, numbers: Iterable[int], total: int, visit: Visit[Segment], *, at_once: int = 4
    ) -> None:
        """Visit segments of this table, some at once; their progress is not written anywhere.

        Args:
            numbers: which segments, in the order in which they are read.
            total: into how many segments the table is cut.
            visit: processes a page.
            at_once: segments that are read at a time.
        """
        await each_of(at_once, numbers, lambda n: self.visit(Segment(n, total), visit))


def patient(dynamodb: Any) -> Callable[..., Awaitable[Reply]]:
    """Return a client's `scan` that is repeated while DynamoDB throttles it."""

    async def scan(**request: Any) -> Reply:
        return await patiently(partial(dynamodb.scan, **request))

    return scan
