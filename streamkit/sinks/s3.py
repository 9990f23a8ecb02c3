"""S3: deliveries as lines of compressed objects, such as an archive of expired items."""

import gzip
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

import anyio.to_thread

from streamkit.aws import AwsError, code_of, open_client
from streamkit.sinks.calls import READ_SECONDS, refusal, unsendable
from streamkit.sinks.envelope import to_line
from streamkit.sinks.sink import Delivery, Limits

_SERVICE = "S3"
_BATCH_ITEMS = 10_000
_BATCH_BYTES = 8_000_000
"""Of one batch, before compression: S3 itself takes far more, but memory and a second's work count.
"""


@dataclass(frozen=True)
class S3Archive:
    """Store in a bucket; the SDK's own region, keys and endpoint are used.

        archive = app.sink(S3Archive("archive", "shop-archive", prefix="sessions/"))

        @app.on
        def keep(change: Expired[Session]) -> Send:
            return Send(archive, change.old)

    One object for each batch and day (UTC, of the changes), `PREFIXdate=2026-03-01/HASH.ndjson.gz`:
    one JSON object a line, with `key`, `id`, `group`, `sequence`, `created_at` and `body` (null for
    a deletion), and `attributes` if there are any.

    Order: that of each item within an object; between objects, sort by `sequence` in a `group`.

    Duplicates: the hash is made of the keys of the deliveries, so that a batch that comes again
    overwrites itself. After a crash the same deliveries may come in other batches and then are in
    two objects: a reader keeps one row for each `key`.

    Attributes:
        name: unique in the app.
        bucket: its name.
        prefix: what the names of objects begin with, such as `sessions/`.
        calls: how many batches may be under way at once.
    """

    name: str
    bucket: str
    prefix: str = ""
    calls: int = 4

    @property
    def limits(self) -> Limits:
        """What one batch takes."""
        return Limits(_BATCH_ITEMS, _BATCH_BYTES, self.calls)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["S3Sender"]:
        """Open a client; the bucket is first looked for when something is stored."""
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
        """Store; return for each None, or why it was not. All of a day fail together."""
        failed: dict[int, Exception] = {}
        days: defaultdict[date, dict[int, bytes]] = defaultdict(dict)
        for place, delivery in enumerate(deliveries):
            try:
                line = to_line(delivery)
            except (TypeError, ValueError) as error:
                failed[place] = unsendable(_SERVICE, error)
                continue
            days[delivery.created_at.astimezone(UTC).date()][place] = line
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
        """Put one object; return the code of what went wrong."""
        body = await anyio.to_thread.run_sync(_compressed, list(lines.values()))
        try:
            await self.client.put_object(
                Bucket=self.bucket, Key=name, Body=body, ContentType="application/gzip"
            )
        except AwsError as error:
            return code_of(error)
        return None


def _compressed(lines: Sequence[bytes]) -> bytes:
    """Compress lines; the same lines give the same bytes, as the time is left out."""
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)
