"""The base of a restore: a table's items as they are now, or as an export to S3 has them.

In: clients and the table, or the folder of an export in DynamoDB JSON, as it was downloaded. Out:
items in wire form, without streamkit's own. On failure: a table that does not answer raises.
"""

import gzip
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from streamkit.aws import Aws, patiently
from streamkit.model.codec import wire_image
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX, Wire

_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def scanned(aws: Aws, source: TableSchema) -> AsyncIterator[dict[str, Wire]]:
    """Yield the items of a table as it is now."""
    start: dict[str, Any] = {}
    while True:
        scan = partial(aws.dynamodb.scan, TableName=source.name, ConsistentRead=True)
        reply = await patiently(partial(scan, **start))
        for item in reply["Items"]:
            if not is_own(source, item):
                yield item
        if "LastEvaluatedKey" not in reply:
            return
        start = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}


def exported(folder: Path, source: TableSchema) -> Iterator[dict[str, Wire]]:
    """Yield the items of an export of a table."""
    for file in sorted(folder.glob("data/*.json.gz")):
        with gzip.open(file, "rb") as lines:
            for line in lines:
                item = wire_image(_LINE.decode(line)["Item"])
                if not is_own(source, item):
                    yield item


def exported_at(folder: Path) -> float | None:
    """Return when the table was as an export has it, by the summary of the export."""
    try:
        summary = msgspec.json.decode((folder / "manifest-summary.json").read_bytes())
        return datetime.fromisoformat(summary["exportTime"]).timestamp()
    except (OSError, ValueError, KeyError):
        return None


def is_own(schema: TableSchema, item: Mapping[str, Any]) -> bool:
    """Return whether an item of a table, or a key of one, is one of streamkit's own."""
    return bool(str(item[schema.pk].get("S", "")).startswith(CONTROL_PREFIX))
