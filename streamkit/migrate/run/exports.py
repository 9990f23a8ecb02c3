"""Read chosen items from an export of the table in S3, which takes none of the table's capacity.

Places are line numbers, counted over all its gzip files. The middle of a file cannot be read alone:
a process that takes a segment over, or begins one there, unpacks that file from its beginning.

No item is missed: changes are followed from the moment that the export shows (`State.follows`), and
`require_followed` checks that the stream still has all of them. An item is read again by its
key, and what it was in the export plays no part.

On failure: `ConfigurationError` for an export of another kind or table, one that is too old, and
broken files.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from streamkit.archive.contents import lines_of, names_in, open_contents, unzipped
from streamkit.errors import ConfigurationError, some_of
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import utc
from streamkit.stream.start import REACH_SECONDS, created_of

SUMMARY = "manifest-summary.json"


@dataclass(frozen=True)
class Export:
    """An export as lines; its `files` are named with their numbers of lines, in all `size`.

    It shows the moment `since` of a table, by its ARN, and its `tag` changes with its list of
    files. `sums` are the MD5 sums of the files, in base64, as far as the list has them.
    """

    source: str
    size: int
    tag: str
    since: float
    table: str
    files: list[tuple[str, int]]
    sums: Mapping[str, str] = field(default_factory=dict)

    async def lines(self, at: int) -> AsyncGenerator[tuple[int, int, bytes], None]:
        """Yield lines from number `at` on: each with its own number and that of the next line."""
        first = 0
        for name, count in self.files:
            begin, first = first, first + count
            if at >= first:
                continue
            async with (
                open_contents(name) as file,
                aclosing(unzipped(file)) as chunks,
                aclosing(lines_of(chunks, name)) as lines,
            ):
                seen = begin
                async for line in lines:
                    seen += 1
                    if seen > first:
                        said = f"more items than the {count} in the manifest"
                        raise ConfigurationError(f"{name}: {said}")
                    if seen > at:
                        yield seen - 1, seen, line
            if seen != first:
                raise ConfigurationError(f"{name}: {seen - begin} items, {count} in the manifest")

    async def require_files(self) -> None:
        """Refuse an export of which a data file is not there; nothing of them is read.

        Raises:
            ConfigurationError: one is missing; or they cannot be listed for another reason than
                that these credentials may not list the bucket.
        """
        found = await names_in(f"{self.source.removesuffix(SUMMARY)}data/")
        missing = [
            n for n, _ in self.files if found is not None and n.rpartition("/")[2] not in found
        ]
        if missing:
            raise ConfigurationError(
                f"{self.source}: {len(missing)} of its {len(self.files)} data files are not there:"
                f" {some_of(missing, 3)}: wait until the export is complete, or copy"
                " all of its files"
            )

    async def where(self, at: int) -> str:
        """Return the file of the line with a number, and its number in that file, as text."""
        files = iter(self.files)
        name, count = next(files)
        while at >= count:
            at -= count
            name, count = next(files)
        return f"{name}, line {at + 1}"


async def open_export(source: str, schema: TableSchema, *, may_be_empty: bool = False) -> Export:
    """Open an export by its summary.

    Raises:
        ConfigurationError: it cannot be read, is of another kind or table, its list of files is not
            whole, or it has no item although it may not be empty.
    """
    where = source.removesuffix(SUMMARY)
    async with open_contents(source) as file:
        summary = await file.read(0, file.size)
    async with open_contents(f"{where}manifest-files.json") as listed:
        listing = [line async for _, _, line in listed.lines(0)]
    try:
        about = json.loads(summary)
        table = about["tableArn"].rpartition("/")[2]
        form = about.get("exportType", "FULL_EXPORT"), about["outputFormat"]
        shown = about.get("exportTime") or about["exportToTime"]  # of an incremental one
        since = datetime.fromisoformat(shown).timestamp()
        # The files lie beside their list, also where the export was copied to.
        found = {
            f"{where}data/{one['dataFileS3Key'].rpartition('/')[2]}": one
            for one in map(json.loads, listing)
        }
        files = [(name, one["itemCount"]) for name, one in found.items() if one["itemCount"]]
        size = sum(count for _, count in files)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"{source}: it is no summary of an export of a table") from None
    if (table, *form) != (schema.name, "FULL_EXPORT", "DYNAMODB_JSON"):
        said = f"export the whole of table {schema.name}, as DYNAMODB_JSON"
        raise ConfigurationError(f"{source}: it is {' as '.join(form)} of table {table}: {said}")
    if about.get("itemCount", size) != size:
        said = f"{size} items in manifest-files.json, {about['itemCount']} in {SUMMARY}"
        raise ConfigurationError(f"{source}: {said}: download the whole export")
    if not (files or may_be_empty):
        raise ConfigurationError(f"{source}: it has no item")
    sums = {name: one["md5Checksum"] for name, one in found.items() if one.get("md5Checksum")}
    return Export(source, size, listed.tag, since, about["tableArn"], files, sums)


def require_table(schema: TableSchema, export: Export) -> None:
    """Refuse an export of a table of the same name in another account or Region.

    Raises:
        ConfigurationError: the keys would be that table's, and some of this one's would be missing.
    """
    here = (schema.stream_arn or export.table).partition("/stream/")[0]
    if here != export.table:
        raise ConfigurationError(
            f"{export.source}: it is an export of {export.table}, and the migration is of {here}:"
            " export that table"
        )


def require_followed(schema: TableSchema, since: float, now: float) -> None:
    """Refuse an export that is older than what the table's stream keeps.

    Raises:
        ConfigurationError: what was written after the export would be missed.
    """
    if schema.stream_arn is None:
        return  # `join` says that there has to be one, and looks again
    made = created_of(schema.stream_label)
    if now - since > REACH_SECONDS or since < made:
        raise ConfigurationError(
            f"the export shows table {schema.name} at {utc(since):%Y-%m-%d %H:%M} UTC, and the"
            f" stream, enabled at {utc(made):%Y-%m-%d %H:%M}, keeps what was written in the last 24"
            " hours: export the table again, and begin with that export"
        )
