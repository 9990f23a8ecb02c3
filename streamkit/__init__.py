"""streamkit: react to changes in a DynamoDB table, exactly once.

Typed changes in, effects as data out, both committed in one transaction with the position in the
stream. The README tells the story; these are the public names.
"""

from streamkit.app import App
from streamkit.changes import Change, Expired, Inserted, ItemKey, Modified, Removed
from streamkit.conditions import Attr, absent, present
from streamkit.effects import (
    Add,
    AddToSet,
    Check,
    Delete,
    Effect,
    Put,
    RemoveFromSet,
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
)
from streamkit.handler import Policy
from streamkit.kinds.aggregate import Aggregate
from streamkit.kinds.measures import Avg, Count, Sum
from streamkit.loss import Loss
from streamkit.table import Table
from streamkit.version import __version__
from streamkit.when import became, changed, crossed

__all__ = [
    "Add",
    "AddToSet",
    "Aggregate",
    "App",
    "Attr",
    "Avg",
    "Change",
    "Check",
    "ConfigurationError",
    "Count",
    "DeclarationError",
    "DecodeError",
    "Delete",
    "Effect",
    "Entity",
    "EpochSeconds",
    "Expired",
    "Index",
    "Inserted",
    "InvariantError",
    "ItemKey",
    "Key",
    "LeaseLost",
    "Loss",
    "Modified",
    "PoisonChange",
    "Policy",
    "Put",
    "Query",
    "RemoveFromSet",
    "Removed",
    "RetentionLost",
    "RetryableError",
    "Set",
    "StreamkitError",
    "Sum",
    "Table",
    "__version__",
    "absent",
    "became",
    "changed",
    "crossed",
    "present",
]
