"""streamkit: react to changes in a DynamoDB table, exactly once.

Typed changes in, effects as data out, both committed in one transaction with the position in the
stream. The README tells the story; these are the public names.
"""

from streamkit.app import App
from streamkit.changes import Change, Expired, Inserted, ItemKey, Modified, Removed
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
from streamkit.entity import Entity, EpochSeconds, Index, Key, Query
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
from streamkit.handler import Policy
from streamkit.kinds.aggregate import Aggregate
from streamkit.kinds.buckets import Until, bucket
from streamkit.kinds.extremes import First, Last, Max, Min, Top
from streamkit.kinds.measures import Avg, Count, Distinct, Sum
from streamkit.kinds.migration import Item
from streamkit.model.conditions import Attr, absent, present
from streamkit.model.keys import Scan
from streamkit.model.when import became, changed, crossed
from streamkit.observe.metrics import Metrics
from streamkit.observe.shards import ShardEvent
from streamkit.observe.traces import Telemetry, Tracer
from streamkit.processing.completion import Completions
from streamkit.shape import IndexShape, TableShape
from streamkit.sinks.eventbridge import EventBridge
from streamkit.sinks.firehose import Firehose
from streamkit.sinks.kinesis import Kinesis
from streamkit.sinks.s3 import S3Archive
from streamkit.sinks.search import Search
from streamkit.sinks.sns import Sns
from streamkit.sinks.sql import SqlTable
from streamkit.sinks.sqs import Sqs
from streamkit.sinks.webhook import Webhook
from streamkit.source.loss import Loss
from streamkit.surroundings import open_table
from streamkit.table import Table
from streamkit.version import __version__

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
