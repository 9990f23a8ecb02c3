"""Views: what the status page shows, as it was read; and what its reader has asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamkit.core.handler import Handler
from streamkit.core.parking import Parked
from streamkit.migrate.operate.status import Line
from streamkit.operate.explanation import Explanation
from streamkit.operate.spending import Spending
from streamkit.operate.status import Status
from streamkit.operate.status_page.checks import Verdict
from streamkit.operate.status_page.history import History
from streamkit.worker.report import WorkerReport


@dataclass(frozen=True, slots=True)
class HandlerView:
    """One handler and its numbers in this process; `mean` is in seconds.

    `effects` counts what it has written here. `behind` are the seconds since the oldest change that
    is not done for it; None if that is not known.
    """

    handler: Handler
    runs: int
    mean: float
    changes: int
    effects: int = 0
    behind: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """One consumer: what this process knows, and what the table holds, if it could be read.

    `parked` are the changes that a reader has asked for, `copies` says that it writes an archive.
    """

    report: WorkerReport
    handlers: Sequence[HandlerView]
    status: Status | None = None
    spending: Spending | None = None
    migrations: Sequence[Line] = ()
    trouble: str = ""
    parked: Sequence[Parked] = ()
    copies: bool = False


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The facts of the process; `at` is the time when the table was read, as text."""

    version: str
    worker: str
    at: str
    ready: Verdict


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader has asked for, by the page's address and forms.

    `shards` is text that a shard's name or owner must hold; `finished` shows finished shards, too.
    `errors` names a consumer whose parked changes are listed. `proof` is put into forms that act;
    without it there are none, and no error texts. `said` is what an action has done. `explained` is
    what a search has found, or why it has found nothing.
    """

    shards: str = ""
    finished: bool = False
    errors: str = ""
    proof: str = ""
    said: str = ""
    explained: Explanation | str | None = None
    history: History = field(default_factory=History)
