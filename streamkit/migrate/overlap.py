"""Find reasons against deleting old items while old code may still write at their keys.

In: a migration's errors, and the time. Out: a sentence that names the items and the command that
shows them, or None.
"""

from streamkit.migrate.errors import ErrorBook

QUIET_SECONDS = 24 * 3600.0
"""Seconds since the last write at an old key before deleting old items: longer than any deploy."""
_NAMED = 5


async def objection(errors: ErrorBook, now: float) -> str | None:
    """Return the reason against deleting old items, if there is one.

    Args:
        errors: the errors of the migration.
        now: the time in epoch seconds.
    """
    number = errors.migration
    found = await errors.open()
    if found:
        some = ", ".join(error.id for error in found[:_NAMED])
        items = "1 item is" if len(found) == 1 else f"{len(found)} items are"
        return (
            f"{items} not right ({some}{', ...' if len(found) > _NAMED else ''}); `streamkit"
            f" migrate errors list APP {number}` shows them: mend each and `errors retry`, or"
            " decide with `errors retry ITEM --take old` or `--take new`"
        )
    last = await last_write(errors, now)
    if last is not None:
        name, at = last
        return (
            f"old code wrote item {name} at its old key {_ago(now - at)} ago (`streamkit migrate"
            f" errors list APP {number}` shows what was not carried over); stop old code: old items"
            " go when it has written none for 24 h"
        )
    return None


async def last_write(errors: ErrorBook, now: float) -> tuple[str, float] | None:
    """Return which item old code wrote last, and when, if that was within 24 hours."""
    last = await errors.last_written()
    return last if last is not None and now - last[1] < QUIET_SECONDS else None


def _ago(seconds: float) -> str:
    """Return a duration in words."""
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
