"""Find reasons against deleting old items while old code may still write at their keys.

In: a migration's errors, and what was counted. Out: a sentence that names the items and the command
that shows them, or None. Code that has written at old keys five minutes before the switch may do so
again tomorrow, so writes before the switch count, too. The time is AWS's, which stamps the writes:
by its own clock, a process that is an hour ahead would delete an hour too early.
"""

from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.old_writes import OldWrites
from streamkit.migrate.book.state import State
from streamkit.progress.clock import Clock

QUIET_SECONDS = 24 * 3600.0
"""Seconds since the last write at an old key before deleting old items: longer than any deploy."""


async def objection(
    errors: ErrorBook, counted: OldWrites, clock: Clock, state: State
) -> str | None:
    """Return the reason against deleting old items, if there is one.

    If people have said that no old code writes any more, only what it wrote after that counts. The
    clock is this process's, for a table that does not say its time.
    """
    number = errors.migration
    said = await broken_word(errors, state) or await errors.not_right()
    if said is not None:
        return said
    last = await last_write(errors, counted, clock, state.run)
    if last is not None and last[1] >= state.declared:
        name, at, now = last
        what = f"item {name} at its old key" if name else "at old keys, before the switch,"
        return (
            f"old code wrote {what} {_ago(now - at)} ago (`streamkit migrate errors list APP"
            f" {number}` shows what was not carried over); stop old code: old items go when it has"
            " written none for 24 h, or now with `contract --old-code none` if you know that none"
            " runs"
        )
    return None


async def last_write(
    errors: ErrorBook, counted: OldWrites, clock: Clock, run: int
) -> tuple[str, float, float] | None:
    """Return which item old code wrote last, when, and the time now, if that was within 24 hours.

    Writes before the switch are counted, and not told apart: then the item's name is empty.
    """
    now = await errors.store.time(clock)
    before = "", await counted.last_before_switch(run)
    # What old code has written may be known from an earlier run, which was rolled back.
    last = max(await errors.last_written() or before, before, key=lambda write: write[1])
    return (*last, now) if now - last[1] < QUIET_SECONDS else None


async def broken_word(errors: ErrorBook, state: State) -> str | None:
    """Return what to do about an old write, if old items go because people said there is none."""
    last = await errors.last_written() if state.at_once else None
    if last is None or last[1] < state.declared:
        return None
    return (
        f"old code wrote item {last[0]} at its old key, but `--old-code none` said that none does;"
        " its write is still there, and no item was deleted that it had written: stop that code,"
        " then `streamkit migrate resume` goes on with stubs, which are watched for 24 h"
    )


async def new_code_objection(counted: OldWrites, now: float, state: State) -> str | None:
    """Return the reason against deleting new items in a rollback, if there is one.

    If people have said that no new code writes any more, there is none.
    """
    ago = now - await counted.last_of_new(state.run)
    if state.declared or ago >= QUIET_SECONDS:
        return None
    return (
        f"new code wrote at new keys {_ago(ago)} ago, so no new item is taken away; both sides are"
        " kept alike until then. Roll that code back; new items go with `streamkit migrate resume`"
        " when it has written none for 24 h, or now with `rollback --new-code none` if you know"
        " that none runs"
    )


def _ago(seconds: float) -> str:
    """Return a duration in words."""
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
