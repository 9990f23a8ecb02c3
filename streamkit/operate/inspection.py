"""Compare an app with its table, and find what the credentials may do.

In: an app and clients. Out: one `AppInspection`: the table's facts, each call that a worker makes
and whether it is allowed, the handlers, and what is wrong. Nothing is changed: a transaction whose
conditions can never hold shows whether writing is allowed. A bucket that is an archive is written
to: an empty object stays there.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from streamkit.app import App, consumers_of
from streamkit.aws import Aws, AwsError, ErrorKind, code_of, trouble_of
from streamkit.core.handler import Handler
from streamkit.core.tables import AppTables, survey
from streamkit.errors import ConfigurationError
from streamkit.kinds.finding import Finding
from streamkit.kinds.injection import OWN
from streamkit.kinds.preflight import findings
from streamkit.migrate.operate.required import missing_migrations
from streamkit.model.conditions import present
from streamkit.model.schema import TableSchema
from streamkit.operate.past.archives import archive_findings
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.permissions.sinks import sink_statement
from streamkit.operate.sample import sample_findings
from streamkit.operate.shape_findings import key_types, shape_findings
from streamkit.operate.starts import start_findings
from streamkit.progress.actions import Action, Verb, render
from streamkit.progress.control import ControlSpace


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it is; `keys` are attribute names with their types."""

    name: str
    keys: dict[str, str]
    stream_view: str | None
    stream: str | None
    ttl: str | None
    indexes: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Permission:
    """One call that a worker makes; `allowed` is None if it could not be tried; `code` says why."""

    action: str
    allowed: bool | None
    code: str = ""


@dataclass(frozen=True, slots=True)
class HandlerFacts:
    """A registered handler with the settings that it will run with.

    `attempts` says how often it is run before the policy applies, and `send_attempts` how often
    each delivery of its result is tried; 0 if it sends nothing.
    """

    name: str
    entity: str
    kinds: tuple[str, ...]
    delivery: str
    on_failure: str
    attempts: int
    send_attempts: int
    timeout_seconds: float | None
    declared: str


@dataclass(frozen=True, slots=True)
class AppInspection:
    """Everything that `check` reports.

    Of the items that were `scanned`, `looked_at` are the application's, and were looked at.
    """

    app: str
    table: TableFacts
    control_table: str
    permissions: tuple[Permission, ...]
    handlers: tuple[HandlerFacts, ...]
    findings: tuple[Finding, ...]
    looked_at: int = 0
    scanned: int = 0

    @property
    def ok(self) -> bool:
        """Return whether a worker can start and do its work; warnings do not prevent it."""
        refused = any(permission.allowed is False for permission in self.permissions)
        return not refused and all(finding.severity != "error" for finding in self.findings)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Return the permissions that could not be tried; `ok` says nothing of them."""
        return tuple(one.action for one in self.permissions if one.allowed is None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {"ok": self.ok, "not_tried": self.not_tried, **asdict(self)}


async def inspect_app(app: App, aws: Aws) -> AppInspection:
    """Compare an app with its table.

    Raises:
        ConfigurationError: a table is missing, or may not be described.
    """
    tables = await survey(app, aws)
    found = [*await _findings(app, tables), *shape_findings(app, tables), *await _closed(app)]
    found += _same_keys(app)
    sample = await sample_findings(app, aws, tables.table)
    found += sample.findings
    missing = await missing_migrations(app, aws)
    found += [] if missing is None else [Finding("error", missing.text)]
    found += await archive_findings(app, aws)
    if not any(finding.severity == "error" for finding in found):
        for one in (app, *(one for one in app.listeners.values() if one.exact)):
            found += await start_findings(one, aws, tables)
    return AppInspection(
        app=app.name,
        table=_table(tables.table),
        control_table=tables.control.name,
        permissions=tuple(await _permissions(app, aws, tables)),
        handlers=tuple(_handler(app, one) for one in app.handlers),
        findings=tuple(found),
        looked_at=sample.looked_at,
        scanned=sample.scanned,
    )


async def _findings(app: App, tables: AppTables) -> list[Finding]:
    """Find what is wrong; open the lifespan only if a handler needs it: it may call services."""
    wanted = {need for handler in app.handlers for need in handler.needs.values()}
    if wanted <= set(OWN):
        return findings(app, tables)
    async with app.resources() as resources:
        return findings(app, tables, resources)


async def _closed(app: App) -> list[Finding]:
    """Find sinks that no worker could open: a library is not installed, or a URL is wrong.

    Only those of streamkit are opened, which connect when they send.
    """
    found = []
    sinks = {id(sink): sink for one in consumers_of([app]) for sink in one.sinks}
    for sink in sinks.values():
        if not type(sink).opened.__module__.startswith("streamkit.sinks."):
            continue
        try:
            async with sink.opened():
                pass
        except ConfigurationError as error:
            text = str(error).removeprefix(f"sink {sink.name!r}: ")
            found.append(Finding("error", f"sink {sink.name!r}: {text}"))
    return found


def _same_keys(app: App) -> Iterator[Finding]:
    """Find handlers that send, and have the name of one of another consumer that sends, too."""
    mine = {one.name for one in app.handlers if one.sends and app.sinks}
    for other in app.listeners.values():
        for name in mine & {one.name for one in other.handlers if one.sends and other.sinks}:
            text = f"{name} of {app.name} and of {other.name} send with the same keys: a receiver"
            text += " of both drops one as a duplicate; rename one, as in @app.on(name=...)"
            yield Finding("warning", text)


def _table(schema: TableSchema) -> TableFacts:
    return TableFacts(
        name=schema.name,
        keys=dict(key_types(schema)),
        stream_view=schema.view_type,
        stream=schema.stream_arn,
        ttl=schema.ttl,
        indexes={index.name: dict(index.keys) for index in schema.indexes.values()},
    )


def _handler(app: App, handler: Handler) -> HandlerFacts:
    return HandlerFacts(
        name=handler.name,
        entity=handler.entity.__name__,
        kinds=tuple(sorted(kind.value for kind in handler.kinds)),
        delivery=handler.delivered.replace("_", " "),
        on_failure=handler.policy.on_failure,
        attempts=handler.policy.attempts if handler.is_async else 1,
        send_attempts=handler.policy.attempts if handler.sends and app.sinks else 0,
        timeout_seconds=handler.policy.timeout_seconds if handler.is_async else None,
        declared=str(handler.declared),
    )


async def _permissions(app: App, aws: Aws, tables: AppTables) -> list[Permission]:
    """Try every call that a worker makes, in a form that changes nothing."""
    asked = [Permission("dynamodb:DescribeTable", allowed=True)]
    asked.append(Permission("dynamodb:DescribeTimeToLive", allowed=True))
    asked += await _stream_permissions(aws, tables.table.stream_arn)
    try:
        space = tables.space(app)
    except ConfigurationError:
        return asked  # no place for control items: the findings report it
    table, key = space.schema.name, space.key("probe")
    dynamodb = aws.dynamodb
    keys = {table: {"Keys": [key]}}
    transaction = {"TransactItems": _never_applied(space)}
    calls: list[tuple[str, Callable[..., Awaitable[Any]], dict[str, Any]]] = [
        ("dynamodb:GetItem", dynamodb.get_item, {"TableName": table, "Key": key}),
        ("dynamodb:BatchGetItem", dynamodb.batch_get_item, {"RequestItems": keys}),
        (
            "dynamodb:PutItem, UpdateItem, DeleteItem, ConditionCheckItem",
            dynamodb.transact_write_items,
            transaction,
        ),
    ]
    for name in app.tables:
        schema = tables.schemas[name]
        if schema.pk_type == "S":
            there = ControlSpace.of(schema, app.name, space.label)
            writes = {"TransactItems": _never_applied(there)}
            calls.append((f"the same on {name}", dynamodb.transact_write_items, writes))
    asked += [(await _try(action, call, arguments))[0] for action, call, arguments in calls]
    return asked + list(_of_sinks(app))


def _of_sinks(app: App) -> Iterator[Permission]:
    """Name the permissions of sinks: they cannot be tried without sending."""
    place = AccountPlace.of()
    for sink in app.sinks:
        statement = sink_statement(sink, place, "sink")
        if statement is not None:
            yield Permission(", ".join(statement.actions), None, f"the sink {sink.name!r}")


async def _stream_permissions(aws: Aws, arn: str | None) -> list[Permission]:
    """Try the three calls on the stream; each needs the reply of the one before."""
    names = [f"dynamodb:{name}" for name in ("DescribeStream", "GetShardIterator", "GetRecords")]
    asked: list[Permission] = []
    if arn is not None:
        permission, reply = await _try(
            names[0], aws.streams.describe_stream, {"StreamArn": arn, "Limit": 1}
        )
        asked.append(permission)
        shards = (reply or {}).get("StreamDescription", {}).get("Shards", [])
        if shards:
            where = {"ShardId": shards[0]["ShardId"], "ShardIteratorType": "LATEST"}
            permission, reply = await _try(
                names[1], aws.streams.get_shard_iterator, {"StreamArn": arn, **where}
            )
            asked.append(permission)
            if reply:
                arguments = {"ShardIterator": reply["ShardIterator"], "Limit": 1}
                asked.append((await _try(names[2], aws.streams.get_records, arguments))[0])
    why = "without a stream" if arn is None else "without a shard to read"
    if asked and not asked[-1].allowed:
        why = "without the one before"
    return asked + [Permission(name, None, why) for name in names[len(asked) :]]


def _never_applied(space: ControlSpace) -> list[dict[str, Any]]:
    """Return one action of each verb on items that never exist, IF they exist."""
    actions = [
        space.update("probe", "update"),
        space.put({}, "probe", "put"),
        space.delete("probe", "delete"),
        Action(space.ref("probe", "check"), Verb.CHECK),
    ]
    return [render(action.only_if(present), space.schema) for action in actions]


async def _try(
    action: str, call: Callable[..., Awaitable[Any]], arguments: dict[str, Any]
) -> tuple[Permission, dict[str, Any] | None]:
    try:
        reply: dict[str, Any] = await call(**arguments)
    except AwsError as error:
        trouble = trouble_of(error)
        if trouble in (ErrorKind.CANCELED, ErrorKind.CONDITION, ErrorKind.TRIMMED):
            return Permission(action, allowed=True), None
        refused = trouble in (
            ErrorKind.REFUSED,
            ErrorKind.OTHER,
            ErrorKind.INVALID,
            ErrorKind.MISSING,
        )
        return Permission(action, False if refused else None, code_of(error)), None
    return Permission(action, allowed=True), reply
