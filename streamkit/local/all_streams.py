"""All streams of an engine, those of deleted tables too, until nothing is left of them.

`CreateTable` and `UpdateTable` call `engine.streams.create(table_name=..., key_schema=...,
view_type=...)` and keep the `Stream` in the table. `engine.streams.settings` holds the behaviour of
streams.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime

from streamkit.local.stream_settings import StreamSettings
from streamkit.local.streams import Stream, StreamCommons
from streamkit.local.waste import Waste


class Streams:
    """All streams of an engine, including those of deleted tables.

    Args:
        shards: how many shards a new stream has when its creation does not say.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        account: str = "000000000000",
        region: str = "us-east-1",
        shards: int = 1,
        settings: StreamSettings | None = None,
    ) -> None:
        self.settings = settings or StreamSettings()
        self.clock = clock
        self.rng = rng
        self.default_shards = shards
        self._readers = 0  # a plain number: Python 3.14 does not pickle an `itertools.count`
        self._prefix = f"arn:aws:dynamodb:{region}:{account}:table/"
        self._streams: dict[str, Stream] = {}
        self._waste = Waste()

    def new_reader(self) -> int:
        """Return the number of an iterator's reader."""
        self._readers += 1
        return self._readers

    def create(
        self,
        *,
        table_name: str,
        key_schema: list[dict[str, str]],
        view_type: str,
        shards: int | None = None,
    ) -> Stream:
        """Make a stream for a table; its label is its creation time, made unique."""
        milliseconds = int(self.clock() * 1000)
        while (arn := self._arn(table_name, milliseconds)) in self._streams:
            milliseconds += 1
        stream = Stream(
            arn,
            table_name,
            key_schema,
            view_type,
            commons=StreamCommons(self.clock, self.rng, self.settings, self._waste),
            shards=self.default_shards if shards is None else shards,
        )
        self._streams[arn] = stream
        return stream

    def find(self, arn: str) -> Stream | None:
        """Return a stream by its ARN; None if it is gone."""
        stream = self._streams.get(arn)
        self._waste.free()
        if stream is not None and stream.gone():
            stream.forget()
            del self._streams[arn]
            return None
        return stream

    def all(self, table_name: str | None = None) -> list[Stream]:
        """Return the streams, or those of one table name, in the order of their ARNs."""
        return [
            stream
            for arn in sorted(self._streams)
            if (stream := self.find(arn)) is not None
            and (table_name is None or stream.table_name == table_name)
        ]

    def _arn(self, table_name: str, milliseconds: int) -> str:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
        label = f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}"
        return f"{self._prefix}{table_name}/stream/{label}"
