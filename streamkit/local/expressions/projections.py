"""Projection expressions: which parts of an item to return."""

from collections.abc import Iterable
from functools import lru_cache

from streamkit.local.expressions.parser import Parser, invalid
from streamkit.local.expressions.paths import DocumentPath, overlap, path_tree, pick
from streamkit.local.expressions.placeholders import Placeholders, undefined
from streamkit.local.values import Item

_KIND = "ProjectionExpression"


class Projection:
    """The document paths to return.

    Attributes:
        paths: in the order asked for.
    """

    __slots__ = ("_names", "_tree", "paths")

    def __init__(self, paths: Iterable[DocumentPath]) -> None:
        self.paths = tuple(paths)
        self._tree = path_tree(self.paths)
        plain = all(len(path) == 1 for path in self.paths)
        self._names = tuple(str(path[0]) for path in self.paths) if plain else None

    def apply(self, item: Item) -> Item:
        """Return the parts of this item that are there."""
        if self._names is None:
            return pick(item, self._tree)
        return {name: item[name] for name in self._names if name in item}


def parse_projection(text: str, placeholders: Placeholders) -> Projection:
    """Parse a ProjectionExpression.

    Args:
        text: the expression.
        placeholders: those of the request; what the expression uses is noted there.

    Raises:
        ApiError: ValidationException, with the service's message.
    """
    projection, names = _parsed(text, placeholders.names_key)
    placeholders.use(names, ())
    return projection


@lru_cache(maxsize=4096)
def _parsed(text: str, names: tuple[tuple[str, str], ...]) -> tuple[Projection, frozenset[str]]:
    parser = Parser(text, _KIND, dict(names))
    paths = [parser.path()]
    while parser.take(","):
        paths.append(parser.path())
    for path in paths:
        for reference in path.missing:
            parser.fault("name", undefined(reference))
    parser.finish()
    steps = [path.steps for path in paths]
    complaint = overlap(steps)
    if complaint:
        raise invalid(_KIND, complaint)
    return Projection(steps), frozenset(parser.names_used)
