"""streamkit: react to changes in a DynamoDB table, exactly once.

Typed changes in, effects as data out, both committed in one transaction with the position in the
stream. The README tells the story; these are the public names. Each is imported when it is first
asked for: a function imports no sinks that it does not use, and `streamkit --help` no AWS SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamkit.errors import (
    ConfigurationError,
    DeclarationError,
    DecodeError,
    InvariantError,
    LeaseLost,
    PoisonChange,
    RetentionLost,
    RetryableError,
    StreamkitError,
    TooManyHops,
    UndeclaredWrite,
)
from streamkit.observe.version import __version__

if TYPE_CHECKING:
    from streamkit.app import App, open_table
    from streamkit.changes import Change, Expired, Inserted, ItemKey, Modified, Removed
    from streamkit.core.completion import Completions
    from streamkit.core.handler import Policy
    from streamkit.core.table_shape import IndexShape, TableShape
    from streamkit.effects import (
        Add,
        AddToSet,
        Check,
        Completed,
        Delete,
        Effect,
        Put,
        Remove,
        RemoveFromSet,
        Send,
        Set,
    )
    from streamkit.entity import Entity, Index, Key, Query
    from streamkit.kinds.aggregate.aggregate import Aggregate
    from streamkit.kinds.aggregate.buckets import Until, bucket
    from streamkit.kinds.aggregate.extremes import First, Last, Max, Min, Top
    from streamkit.kinds.aggregate.measures import Avg, Count, Distinct, Sum
    from streamkit.kinds.migration import Item
    from streamkit.model.conditions import Attr, absent, present
    from streamkit.model.epoch import EpochSeconds
    from streamkit.model.queries import Scan
    from streamkit.model.when import became, changed, crossed
    from streamkit.observe.metrics import Metrics
    from streamkit.observe.shards import ShardEvent
    from streamkit.observe.traces import Telemetry, Tracer
    from streamkit.sinks.eventbridge import EventBridge
    from streamkit.sinks.firehose import Firehose
    from streamkit.sinks.kinesis import Kinesis
    from streamkit.sinks.s3 import S3Archive
    from streamkit.sinks.search import Search
    from streamkit.sinks.sns import Sns
    from streamkit.sinks.sql import SqlTable
    from streamkit.sinks.sqs import Sqs
    from streamkit.sinks.webhook import Webhook
    from streamkit.stream.loss import Loss
    from streamkit.table import OpenTable, Table

__all__ = [
    "Add",
    "AddToSet",
    "Aggregate",
    "App",
    "Attr",
    "Avg",
    "Change",
    "Check",
    "Completed",
    "Completions",
    "ConfigurationError",
    "Count",
    "DeclarationError",
    "DecodeError",
    "Delete",
    "Distinct",
    "Effect",
    "Entity",
    "EpochSeconds",
    "EventBridge",
    "Expired",
    "Firehose",
    "First",
    "Index",
    "IndexShape",
    "Inserted",
    "InvariantError",
    "Item",
    "ItemKey",
    "Key",
    "Kinesis",
    "Last",
    "LeaseLost",
    "Loss",
    "Max",
    "Metrics",
    "Min",
    "Modified",
    "OpenTable",
    "PoisonChange",
    "Policy",
    "Put",
    "Query",
    "Remove",
    "RemoveFromSet",
    "Removed",
    "RetentionLost",
    "RetryableError",
    "S3Archive",
    "Scan",
    "Search",
    "Send",
    "Set",
    "ShardEvent",
    "Sns",
    "SqlTable",
    "Sqs",
    "StreamkitError",
    "Sum",
    "Table",
    "TableShape",
    "Telemetry",
    "TooManyHops",
    "Top",
    "Tracer",
    "UndeclaredWrite",
    "Until",
    "Webhook",
    "__version__",
    "absent",
    "became",
    "bucket",
    "changed",
    "crossed",
    "open_table",
    "present",
]

_MODULES = {
    "streamkit.app": "App open_table",
    "streamkit.changes": "Change Expired Inserted ItemKey Modified Removed",
    "streamkit.effects": "Add AddToSet Check Completed Delete Effect Put"
    " Remove RemoveFromSet Send Set",
    "streamkit.entity": "Entity Index Key Query",
    "streamkit.core.handler": "Policy",
    "streamkit.kinds.aggregate.aggregate": "Aggregate",
    "streamkit.kinds.aggregate.buckets": "Until bucket",
    "streamkit.kinds.aggregate.extremes": "First Last Max Min Top",
    "streamkit.kinds.aggregate.measures": "Avg Count Distinct Sum",
    "streamkit.kinds.migration": "Item",
    "streamkit.model.conditions": "Attr absent present",
    "streamkit.model.epoch": "EpochSeconds",
    "streamkit.model.queries": "Scan",
    "streamkit.model.when": "became changed crossed",
    "streamkit.observe.metrics": "Metrics",
    "streamkit.observe.shards": "ShardEvent",
    "streamkit.observe.traces": "Telemetry Tracer",
    "streamkit.core.completion": "Completions",
    "streamkit.core.table_shape": "IndexShape TableShape",
    "streamkit.sinks.eventbridge": "EventBridge",
    "streamkit.sinks.firehose": "Firehose",
    "streamkit.sinks.kinesis": "Kinesis",
    "streamkit.sinks.s3": "S3Archive",
    "streamkit.sinks.search": "Search",
    "streamkit.sinks.sns": "Sns",
    "streamkit.sinks.sql": "SqlTable",
    "streamkit.sinks.sqs": "Sqs",
    "streamkit.sinks.webhook": "Webhook",
    "streamkit.stream.loss": "Loss",
    "streamkit.table": "OpenTable Table",
}
"""Where the public names come from; type checkers read the imports above instead."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # else a name that does not exist would pass the type checkers

    def __getattr__(name: str) -> Any:
        """Import a public name, and keep it."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
