"""DynamoDB's expression language.

One request makes one `Placeholders`, parses its expressions with it, and calls `finish`. What the
parse functions return is bound to that request and applied to any number of items. The parse
itself is kept by text, because the same texts come again and again.
"""

from streamkit.local.expressions.changes import Update, UpdateResult
from streamkit.local.expressions.conditions import Condition, parse_condition
from streamkit.local.expressions.keys import KeyCondition, parse_key_condition
from streamkit.local.expressions.paths import DocumentPath, pick_paths
from streamkit.local.expressions.placeholders import Placeholders
from streamkit.local.expressions.projections import Projection, parse_projection
from streamkit.local.expressions.reserved import RESERVED_WORDS
from streamkit.local.expressions.updates import parse_update

__all__ = [
    "RESERVED_WORDS",
    "Condition",
    "DocumentPath",
    "KeyCondition",
    "Placeholders",
    "Projection",
    "Update",
    "UpdateResult",
    "parse_condition",
    "parse_key_condition",
    "parse_projection",
    "parse_update",
    "pick_paths",
]
