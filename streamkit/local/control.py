"""Control: commands for what AWS does by itself: shards split, roll, are trimmed; items expire.

Tests and demos hold a `Control` of their engine. Another process reaches the same commands through
the server's control door, by the names in `COMMANDS`. Commands return plain JSON values. A command
that cannot be carried out raises `ControlError`, and has then changed nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from inspect import signature
from typing import Any, Protocol

import msgspec

from streamkit.local.all_streams import Streams
from streamkit.local.shards import EngineShard
from streamkit.local.stream_settings import StreamSettings
from streamkit.local.streams import Stream


class ControlError(ValueError):
    """A command names something that is not there, or is not valid."""


class Controllable(Protocol):
    """The part of the engine that the commands need."""

    streams: Streams

    @property
    def tables(self) -> Mapping[str, Any]:
        """Return the tables by name."""
        ...

    def call(
        self, service: str, operation: str, payload: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Carry out an operation of the API."""
        ...

    def advance(self, seconds: float) -> float:
        """Put the clock ahead; return the time, in epoch seconds."""
        ...

    def expire(self, table_name: str) -> int:
        """Delete a table's items whose time to live has passed; return how many."""
        ...

    def everywhere(self) -> "Sequence[Controllable]":
        """Return the engines of all Regions and accounts, this one among them."""
        ...


class Control:
    """Commands for one engine and its tables in other Regions and accounts.

    `table` is always a table's name; where two Regions have tables of that name, it is the ARN.
    """

    def __init__(self, engine: Controllable) -> None:
        self._engine = engine

    def shards(self, table: str) -> list[dict[str, Any]]:
        """Describe every shard of the table's newest stream, including hidden and unlisted ones."""
        return [_summary(shard) for shard in self._stream(table).shards()]

    def split(self, table: str, shard: str | None = None) -> list[str]:
        """Split an open shard in two, or every open shard; return the ids of the children."""
        stream = self._stream(table)
        return [child.id for parent in _chosen(stream, shard) for child in stream.split(parent.id)]

    def roll(self, table: str, shard: str | None = None) -> list[str]:
        """Replace an open shard, or every open shard, by one child; return the children's ids."""
        stream = self._stream(table)
        return [stream.roll(parent.id).id for parent in _chosen(stream, shard)]

    def hide(self, table: str, shard: str, hidden: bool = True) -> None:
        """Leave a shard out of listings, or list it again; a hidden shard can still be read."""
        found = self._stream(table).shard(shard)
        if found is None:
            raise ControlError(f"table {table} has no shard {shard}")
        found.hidden = hidden

    def trim(self, table: str, before: float | None = None) -> None:
        """Trim the records older than a time (epoch seconds), or all records.

        Shards that were closed, and streams that were disabled, before that time are gone then.
        """
        bound = float("inf") if before is None else float(before)
        self._stream(table)
        engine, name = self._place(table)
        for stream in engine.streams.all(name):
            stream.trim(bound)

    def disable(self, table: str) -> None:
        """Disable the table's stream, as `UpdateTable` does."""
        self._update(table, {"StreamEnabled": False})

    def enable(self, table: str, view_type: str = "NEW_AND_OLD_IMAGES") -> str:
        """Give the table a new stream, as `UpdateTable` does; return its ARN."""
        self._update(table, {"StreamEnabled": True, "StreamViewType": view_type})
        return self._stream(table).arn

    def expire(self, table: str) -> int:
        """Delete the items whose time to live has passed; return how many."""
        engine, name = self._place(table)
        if name not in engine.tables:
            raise ControlError(f"there is no table {table}")
        return engine.expire(name)

    def advance(self, seconds: float) -> float:
        """Put the clock ahead, for all Regions and accounts; return the time, in epoch seconds.

        Records older than a day are trimmed then, as always. Items are not expired by this.
        """
        if not 0 < float(seconds) < float("inf"):
            raise ControlError("the clock only goes ahead: give a number of seconds above 0")
        return self._engine.advance(float(seconds))

    def configure(self, **settings: Any) -> dict[str, Any]:
        """Change fields of `StreamSettings`; return all of them."""
        current = self._engine.streams.settings
        if unknown := sorted(settings.keys() - asdict(current).keys()):
            raise ControlError(f"no such setting: {', '.join(unknown)}")
        try:
            changed = msgspec.convert(asdict(current) | settings, StreamSettings)
        except msgspec.ValidationError as error:
            raise ControlError(str(error)) from None
        for name in settings:
            setattr(current, name, getattr(changed, name))
        return asdict(current)

    def run(self, command: str, arguments: dict[str, Any]) -> Any:
        """Carry out a command by name, as the control door does.

        Raises:
            ControlError: there is no such command, or the arguments do not fit it.
        """
        function = COMMANDS.get(command)
        if function is None:
            raise ControlError(f"no command {command!r}; there are {', '.join(COMMANDS)}")
        try:
            bound = signature(function).bind(self, **arguments)
        except TypeError as error:
            raise ControlError(f"{command}: {error}") from None
        return function(*bound.args, **bound.kwargs)

    def _stream(self, table: str) -> Stream:
        engine, name = self._place(table)
        streams = engine.streams.all(name)
        if not streams:
            raise ControlError(f"table {table} has no stream")
        return max(streams, key=lambda stream: stream.label)

    def _place(self, table: str) -> tuple[Controllable, str]:
        """Return the engine that has a table, and the table's name."""
        name = table.rpartition("/")[2]
        found = [engine for engine in self._engine.everywhere() if _has(engine, table, name)]
        if len(found) > 1 and self._engine not in found:
            raise ControlError(f"several Regions have a table {table}: give its ARN")
        return (self._engine if self._engine in found or not found else found[0]), name

    def _update(self, table: str, specification: dict[str, Any]) -> None:
        engine, name = self._place(table)
        request = {"TableName": name, "StreamSpecification": specification}
        status, body = engine.call("dynamodb", "UpdateTable", request)
        if status != 200:
            raise ControlError(str(body.get("message", body)))


COMMANDS: dict[str, Callable[..., Any]] = {
    "advance": Control.advance,
    "configure": Control.configure,
    "disable": Control.disable,
    "enable": Control.enable,
    "expire": Control.expire,
    "hide": Control.hide,
    "roll": Control.roll,
    "shards": Control.shards,
    "split": Control.split,
    "trim": Control.trim,
}


def _has(engine: Controllable, table: str, name: str) -> bool:
    """Return whether an engine has a table, or remaining streams of a deleted one."""
    if table != name:
        prefix = f"{table}/stream/"
        there = engine.tables.get(name)
        return (there is not None and there.arn == table) or any(
            stream.arn.startswith(prefix) for stream in engine.streams.all(name)
        )
    return name in engine.tables or bool(engine.streams.all(name))


def _chosen(stream: Stream, shard_id: str | None) -> list[EngineShard]:
    found = [stream.shard(shard_id)] if shard_id is not None else stream.open_shards()
    chosen = [shard for shard in found if shard is not None and shard.closed is None]
    if not chosen:
        raise ControlError(f"no open shard {shard_id or ''} in {stream.arn}")
    return chosen


def _summary(shard: EngineShard) -> dict[str, Any]:
    return {
        "id": shard.id,
        "parent": shard.parent_id,
        "open": shard.closed is None,
        "created": shard.created,
        "closed": shard.closed,
        "start": str(shard.start),
        "last": str(shard.last),
        "trimmed": str(shard.trimmed),
        "records": len(shard),
        "hidden": shard.hidden,
    }
