"""Condition and filter expressions: the grammar, and a condition bound to a request's values.

`NOT` binds tighter than `AND`, `AND` tighter than `OR`. A parsed text is kept, by text and names,
for later requests; what remains per request is looking up the values and checking their types.
"""

from functools import lru_cache

from streamkit.local.expressions.condition_parser import ConditionParser, ConditionTree
from streamkit.local.expressions.operands import Values
from streamkit.local.expressions.parser import invalid
from streamkit.local.expressions.paths import DocumentPath
from streamkit.local.expressions.placeholders import Placeholders
from streamkit.local.expressions.predicates import Node
from streamkit.local.values import Item


class Condition:
    """A condition with the values of one request.

    Attributes:
        paths: every document path it mentions.
    """

    __slots__ = ("_root", "_values", "paths")

    def __init__(self, root: Node, values: Values, paths: tuple[DocumentPath, ...] = ()) -> None:
        self._root = root
        self._values = values
        self.paths = paths

    def matches(self, item: Item | None) -> bool:
        """Return whether an item meets the condition; None stands for a missing item."""
        return self._root.matches(item or {}, self._values)


def parse_condition(
    text: str, placeholders: Placeholders, kind: str = "ConditionExpression"
) -> Condition:
    """Parse a condition and bind it to a request.

    Args:
        text: the expression.
        placeholders: those of the request; what the expression uses is noted there.
        kind: the parameter the text came in, for error messages.

    Raises:
        ApiError: ValidationException, with the service's message.
    """
    tree = bound_tree(text, placeholders, kind)
    return Condition(tree.root, placeholders.values, tree.paths)


def bound_tree(
    text: str, placeholders: Placeholders, kind: str, *, redundant_parentheses: bool = False
) -> ConditionTree:
    """Return the parsed text, after its check against the values of a request."""
    tree = _parsed(text, kind, placeholders.names_key, redundant_parentheses)
    placeholders.use(tree.names, tree.values)
    values = placeholders.values
    for leaf in tree.leaves:
        complaint = leaf.complaint(values)
        if complaint:
            raise invalid(kind, complaint)
    return tree


@lru_cache(maxsize=4096)
def _parsed(
    text: str, kind: str, names: tuple[tuple[str, str], ...], redundant_parentheses: bool
) -> ConditionTree:
    parser = ConditionParser(text, kind, dict(names), redundant_parentheses)
    return parser.parse()
