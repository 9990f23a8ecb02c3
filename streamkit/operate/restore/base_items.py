"""The base of a restore: a table's items as they are now, or as an export to S3 has them.

In: clients and the table, or the folder of an export in DynamoDB JSON, as it was downloaded. Out:
items in wire form, without streamkit's own. On failure: a table that does not answer raises, and so
does an export that is not whole.
"""

import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec

from streamkit.archive.contents import open_contents
from streamkit.aws import Aws
from streamkit.errors import ConfigurationError
from streamkit.migrate.run.exports import SUMMARY, Export, open_export
from streamkit.model.codec import wire_image
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire, is_own
from streamkit.progress.fetch import pages_of

_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def scanned(aws: Aws, source: TableSchema) -> AsyncIterator[dict[str, Wire]]:
    """Yield the items of a table as it is now."""
    async for reply in pages_of(aws.dynamodb.scan, TableName=source.name, ConsistentRead=True):
        for item in reply["Items"]:
            if not is_own(source, item):
                yield item


async def open_base(folder: Path, source: TableSchema) -> Export:
    """Open an export of a table in a folder.

    Raises:
        ConfigurationError: it cannot be read, is of another kind or table, or a file of it is
            missing, has other bytes than its list of files says, or more or fewer items.
    """
    export = await open_export(str(folder / SUMMARY), source, may_be_empty=True)
    missing = [name for name, _ in export.files if not await anyio.Path(name).is_file()]
    if missing:
        said = f"{len(missing)} of {len(export.files)} files are missing, such as {missing[0]}"
        raise ConfigurationError(f"{export.source}: {said}: download the whole export")
    for name, _ in export.files:
        await _require_sum(name, export.sums.get(name))
    async with aclosing(export.lines(0)) as lines:
        async for _ in lines:
            pass  # they are counted: nothing may have been written when one is missing
    return export


async def _require_sum(name: str, wanted: str | None) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    async with open_contents(name) as file, aclosing(file.chunks(0)) as chunks:
        async for chunk in chunks:
            digest.update(chunk)
    if wanted not in (None, b64encode(digest.digest()).decode()):
        raise ConfigurationError(
            f"{name}: it is not as it was exported, as its MD5 sum shows: download it again"
        )


async def exported(export: Export, source: TableSchema) -> AsyncIterator[dict[str, Wire]]:
    """Yield the items of an export of a table.

    Raises:
        ConfigurationError: a file has more or fewer items than the export's list of files says.
    """
    async with aclosing(export.lines(0)) as lines:
        async for _, _, line in lines:
            item = wire_image(_LINE.decode(line)["Item"])
            if not is_own(source, item):
                yield item
