"""S3: deliveries become lines of compressed objects, such as an archive of expired items."""

import gzip
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import anyio.to_thread

from streamkit.aws import AwsError, code_of, open_client
from streamkit.sinks.calls import READ_SECONDS, refusal, unsendable
from streamkit.sinks.envelope import to_line
from streamkit.sinks.sink import Delivery, Limits

_SERVICE = "S3"
_BATCH_ITEMS = 10_000
_BATCH_BYTES = 8_000_000
"""The size of one batch before compression. S3 takes far more; this limits memory, and the work of
compressing to about a second."""


@dataclass(frozen=True)
class S3Archive:
    """Store deliveries in a bucket, with the SDK's own region, keys and endpoint.

        archive = app.sink(S3Archive("archive", "shop-archive", prefix="sessions/"))

        @app.on
        def keep(change: Expired[Session]) -> Send:
            return Send(archive, change.old)

    Each batch writes one object for each day of its changes (UTC), named
    `PREFIXdate=2026-03-01/HASH.ndjson.gz`. Each line is a JSON object with `key`, `id`, `group`,
    `sequence`, `created_at` and `body` (null for a deletion), and `attributes` if there are any.

    Order: within an object the order of each item is kept; a reader of several objects sorts by
    `sequence` in a `group`.

    Duplicates: the hash is made of the keys of the deliveries, so a batch that comes again
    overwrites itself. After a crash the same deliveries may come in other batches and are then in
    two objects. A reader must keep only one row for each `key`.

    Attributes:
        name: unique in the app.
        bucket: the bucket's name.
        prefix: the beginning of all object names, such as `sessions/`.
        calls: how many batches may be under way at once.
    """

    name: str
    bucket: str
    prefix: str = ""
    calls: int = 4

    @property
    def limits(self) -> Limits:
        """Return what one batch takes."""
        return Limits(_BATCH_ITEMS, _BATCH_BYTES, self.calls)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["S3Sender"]:
        """Open a client; a missing bucket is noticed at the first store, not here."""
        async with open_client("s3", read_seconds=READ_SECONDS) as client:
            yield S3Sender(client, self.bucket, self.prefix)


class S3Sender:
    """An open `S3Archive`."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        """Store in a bucket through a client of the SDK."""
        self.client = client
        self.bucket = bucket
        self.prefix = prefix

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Store; return for each delivery None, or its error. All of a day fail together."""
        failed: dict[int, Exception] = {}
        days: defaultdict[date, dict[int, bytes]] = defaultdict(dict)
        for place, delivery in enumerate(deliveries):
            try:
                line = to_line(delivery)
            except (TypeError, ValueError) as error:
                failed[place] = unsendable(_SERVICE, error)
                continue
            days[delivery.created_at.date()][place] = line
        for day, lines in days.items():
            name = self._name(day, [deliveries[place].key for place in lines])
            code = await self._store(name, lines)
            if code is not None:
                failed |= {place: refusal(_SERVICE, code) for place in lines}
        return [failed.get(place) for place in range(len(deliveries))]

    def _name(self, day: date, keys: Sequence[str]) -> str:
        digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:32]
        return f"{self.prefix}date={day.isoformat()}/{digest}.ndjson.gz"

    async def _store(self, name: str, lines: Mapping[int, bytes]) -> str | None:
        """Put one object; return None, or the error code."""
        body = await anyio.to_thread.run_sync(_compressed, list(lines.values()))
        try:
            await self.client.put_object(
                Bucket=self.bucket, Key=name, Body=body, ContentType="application/gzip"
            )
        except AwsError as error:
            return code_of(error)
        return None


def _compressed(lines: Sequence[bytes]) -> bytes:
    """Compress lines. The same lines give the same bytes, because the time is left out."""
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)
