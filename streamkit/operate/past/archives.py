"""Open the archive of an app, and verify that it has every record since a moment, as it was stored.

In: an app with an archive. Out: what is there, and every gap; see `streamkit.archive.completeness`.
On failure: an app without an archive is a `ConfigurationError`.
"""

import anyio

from streamkit.app import App
from streamkit.archive.answers import ANSWER_SECONDS
from streamkit.archive.completeness import ArchiveCheck, check
from streamkit.archive.still_streamed import StillStreamed
from streamkit.aws import Aws, AwsError, code_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.fleet.cursors import every_cursor
from streamkit.kinds.finding import Finding
from streamkit.operate.past.archive_sample import compare_sample
from streamkit.operate.past.past import archive_of, begun, open_archive, open_past
from streamkit.progress.clock import Clock, SystemClock

_MARKER = "writable"
"""The name of the empty object that `check` leaves in a bucket, beside `archive.json`."""


async def archive_findings(app: App, aws: Aws) -> list[Finding]:
    """Return why an archive cannot be read, listed and written, as `check` says; none if it can."""
    if app.archive is None:
        return []
    text, verb = f"{app.declared}: the archive in {app.archive.place} ", "read"
    with anyio.move_on_after(ANSWER_SECONDS):
        try:
            async with open_archive(app, await survey(app, aws), patient=True) as archive:
                await archive.objects.names(f"{archive.stream}/lineage/")
                await archive.began()
                verb = "written"
                await archive.objects.try_writing(f"{archive.stream}/{_MARKER}")
        except ConfigurationError as error:
            return [Finding("error", f"{app.declared}: {error}")]
        except AwsError as error:
            todo = "check its name and Region, and the permissions that `streamkit iam` prints"
            return [Finding("error", f"{text}cannot be {verb}: {code_of(error)}; {todo}")]
        return []
    return [Finding("error", f"{text}does not answer within {ANSWER_SECONDS:.0f} s")]


async def verify_archive(
    app: App,
    aws: Aws,
    since: float = 0.0,
    *,
    sample: int = 0,
    show_keys: bool = False,
    clock: Clock | None = None,
) -> ArchiveCheck:
    """Read an app's archive from a moment on, and say what is missing.

    Args:
        app: the app.
        aws: open clients.
        since: epoch seconds; 0 for the whole archive.
        sample: how many items are compared with the table, by their latest archived images.
        show_keys: name items that differ by their keys, and not by hashes of these.
        clock: for simulations.

    Raises:
        ConfigurationError: the app has no archive, nothing was ever stored in it, or its table has
            no stream.
    """
    place, tables = archive_of(app).place, await survey(app, aws)
    async with open_archive(app, tables) as archive:
        store = tables.store(app.writer, aws)
        began, written = await begun(app, archive, store), await every_cursor(store)
        time = await store.clock(clock or SystemClock())
        still = StillStreamed(aws, tables.table.stream_arn or "", archive, time)
        since = int(since)  # changes are stamped to the second
        found = await check(still, place, since, began, written)
    found.note_beginning(began, since)
    if sample:
        async with open_past(app, aws, clock, allow_loss=True, tables=tables) as (past, _):
            seen = await compare_sample(past, tables, sample)
        found.compare(seen.compared, seen.named(show_keys=show_keys))
    return found
