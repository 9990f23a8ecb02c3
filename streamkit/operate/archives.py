"""Open the archive of an app, and verify that it has every record since a moment, as it was stored.

In: an app with an archive. Out: what is there, and every gap; see `streamkit.archive.completeness`.
On failure: an app without an archive is a `ConfigurationError`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamkit.app import App
from streamkit.archive.completeness import ArchiveCheck, Gap, check
from streamkit.archive.shards import ArchivedShards
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.operate.archive_sample import compare_sample
from streamkit.operate.past import open_past
from streamkit.progress.clock import Clock, utc


@asynccontextmanager
async def open_archive(app: App, aws: Aws) -> AsyncIterator[ArchivedShards]:
    """Open what an app's archive has of its table's stream.

    Raises:
        ConfigurationError: the app has no archive, or its table has no stream.
    """
    if app.archive is None:
        raise ConfigurationError(
            f"{app.declared} has no archive=: declare one, such as BucketArchive('s3://BUCKET')"
        )
    tables = await survey(app, aws)
    label = tables.space(app.writer).label
    async with app.archive.opened() as objects:
        yield ArchivedShards(objects, f"{app.table}/{label}")


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
        sample: so many items are compared with the table, by their latest archived images.
        show_keys: name those that differ by their keys, and not by hashes.
        clock: for simulations.

    Raises:
        ConfigurationError: the app has no archive, nothing was ever stored in it, or its table has
            no stream.
    """
    async with open_archive(app, aws) as archive:
        began, place = await archive.began(), app.archive.place if app.archive else ""
        if began is None:
            raise ConfigurationError(
                f"{place} has nothing of {archive.stream}: the archive was never written; check its"
                f" place, and whether a worker of {app.writer.name} runs"
            )
        found = await check(archive, place, since)
    found.began = began
    if 0 < since < began:
        text = f"the archive begins at {utc(began).isoformat()}"
        found.gaps.insert(0, Gap("", "", "", text))
    if sample:
        async with open_past(app, aws, clock, allow_loss=True) as (past, tables):
            seen = await compare_sample(past, tables, sample)
        found.compare(seen.compared, seen.named(show_keys=show_keys))
    return found
