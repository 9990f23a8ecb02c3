"""Return one line for each migration that is not done, for `streamkit status` and its page.

In: an app, whose files of migrations need not have been run. Out: lines, in order. A migration that
was never applied is `pending`; one that was done or rolled back is not listed. First come those
under way that have no file in this release.
"""

from contextlib import suppress
from dataclasses import dataclass

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.kinds.migration import rank
from streamkit.migrate.book.discovery import DiscoveryError, files_of
from streamkit.migrate.book.state import ENDED, State
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate.progress import Progress, ProgressReader
from streamkit.model.json_fields import JsonFields
from streamkit.progress.clock import Clock


@dataclass(frozen=True, slots=True)
class Line(JsonFields):
    """One migration: `phase` with what operators want of it, `share` of its pass in words.

    `done` is the same share, 0 to 1, and `left` how many seconds the pass still takes; None where
    that is not known.
    """

    migration: str
    phase: str
    share: str
    errors: int
    note: str
    done: float | None = None
    left: float | None = None


async def list_migrations(app: App, aws: Aws, *, clock: Clock | None = None) -> list[Line]:
    """Return the migrations of an app that are not done.

    Raises:
        ConfigurationError: the table is missing, or may not be described.
    """
    if "." in app.name:
        return []  # a listener; its app has the migrations
    numbers = numbers_of(app)
    reader = ProgressReader(app, aws, clock)
    found = await reader.read_absent({*numbers, *app.done_everywhere})
    states = await (await open_book(app, aws)).read_all(numbers)
    found += [await reader.read(state.id) for state in states if state.phase not in ENDED]
    return [line_of(one) for one in found]


def numbers_of(app: App) -> list[str]:
    """Return the numbers of an app's migrations in order, also of files that have not been run."""
    if "." in app.name:
        return []  # a listener; its app has the migrations
    numbers = set(app.migrations)
    with suppress(DiscoveryError):  # `streamkit migrate check` reports it
        numbers |= set(files_of(app))
    return sorted(numbers, key=rank)


def phase_of(now: Progress | State) -> str:
    """Return the phase and what an operator asked for."""
    text = "pending" if now.phase == "new" else now.phase
    text += ", going back" if now.direction == "back" and now.phase != "rolled back" else ""
    return f"{text}, paused" if now.desired == "pause" else text


def parked_text(now: Progress) -> str:
    """Return what is parked of the changes that its own consumer follows, and what to do."""
    waits = sum(now.stuck.values())
    tried = now.parked - waits
    parts = [f"{tried} parked changes of its own consumer are tried again by themselves"] * bool(
        tried
    )
    if waits:
        errors = ", ".join(f"{count} {error}" for error, count in sorted(now.stuck.items()))
        parts.append(
            f"{waits} parked changes of its own consumer are stuck ({errors}): mend what"
            " `handler.failed` in the log of its processes names, then run"
            f" `streamkit migrate errors retry APP {now.migration}`"
        )
    return "; ".join(parts)


def line_of(progress: Progress) -> Line:
    """Return the line of one migration."""
    share = "-" if progress.share is None else f"{progress.share:.1%}"
    note = "; ".join(filter(None, (progress.note, parked_text(progress))))
    return Line(
        progress.migration,
        phase_of(progress),
        share,
        progress.open_errors,
        note,
        progress.share,
        progress.eta,
    )
