"""The functions of conditions: attribute_exists, attribute_type, begins_with and contains.

Each is a leaf of the tree of a condition, see `predicates`.
"""

from base64 import b64decode
from collections.abc import Callable

from streamkit.local.expressions.operands import (
    Operand,
    Path,
    Values,
    needs_path,
    wrong_operand_type,
)
from streamkit.local.expressions.predicates import ORDERED, Leaf
from streamkit.local.values import AttributeValue, Item, equal

_PREFIXED = frozenset({"S", "B"})
# In the order the service lists them.
_TYPE_NAMES = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
_ANY_TYPE = "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}"


class Exists(Leaf):
    """`attribute_exists(path)` and `attribute_not_exists(path)`."""

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=1)
        self._when_there = name == "attribute_exists"

    def type_complaint(self, values: Values) -> str | None:  # noqa: ARG002 - of the base class
        """Refuse a value, because it always exists; a path may not."""
        return None if isinstance(self.operands[0], Path) else needs_path(self.name)

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the item has the path, or has it not, as the function asks."""
        return (self.operands[0].read(item, values) is not None) is self._when_there


class AttributeType(Leaf):
    """`attribute_type(path, :type)`."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def type_complaint(self, values: Values) -> str | None:
        """Refuse a second operand that is not the name of a type."""
        type_name = self.operands[1].type_name(values)
        wanted = self.operands[1].read({}, values) if type_name == "S" else None
        if wanted is None:
            return wrong_operand_type(self.name, type_name or _ANY_TYPE)
        if wanted["S"] not in _TYPE_NAMES:
            return (
                f"Invalid attribute type name found; type: {wanted['S']}, "
                f"valid types: {{{','.join(_TYPE_NAMES)}}}"
            )
        return None

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the item's value has the type."""
        value = self.operands[0].read(item, values)
        wanted = self.operands[1].read(item, values)
        return value is not None and wanted is not None and wanted["S"] in value


class BeginsWith(Leaf):
    """`begins_with(path, :prefix)`, for strings and for binaries."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def type_complaint(self, values: Values) -> str | None:
        """Only strings and binaries have a beginning."""
        return self._only_types(_PREFIXED, values)

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the value begins with the prefix."""
        value, prefix = (operand.read(item, values) for operand in self.operands)
        return value is not None and prefix is not None and begins_with(value, prefix)


def begins_with(value: AttributeValue, prefix: AttributeValue) -> bool:
    """Return whether a string or binary begins with another of its type."""
    if "S" in value and "S" in prefix:
        return bool(value["S"].startswith(prefix["S"]))
    if "B" in value and "B" in prefix:
        return b64decode(value["B"]).startswith(b64decode(prefix["B"]))
    return False


class Contains(Leaf):
    """`contains(path, :part)`: a part of a string or binary, a member of a set or list."""

    distinct = True

    def __init__(self, name: str, operands: tuple[Operand, ...]) -> None:
        super().__init__(name, operands, count=2)

    def matches(self, item: Item, values: Values) -> bool:
        """Return whether the value contains the part."""
        value, part = (operand.read(item, values) for operand in self.operands)
        return value is not None and part is not None and contains(value, part)


def contains(value: AttributeValue, part: AttributeValue) -> bool:
    """Return whether a value holds another: as a substring, as a member of a set or of a list."""
    ((kind, whole),) = value.items()
    ((part_kind, wanted),) = part.items()
    if kind == "L":
        return any(equal(element, part) for element in whole)
    if kind == "B" and part_kind == "B":
        return b64decode(wanted) in b64decode(whole)
    if kind in (part_kind + "S", "S") and part_kind in ORDERED:
        return (kind != "S" or part_kind == "S") and wanted in whole
    return False


FUNCTIONS: dict[str, Callable[[str, tuple[Operand, ...]], Leaf]] = {
    "attribute_exists": Exists,
    "attribute_not_exists": Exists,
    "attribute_type": AttributeType,
    "begins_with": BeginsWith,
    "contains": Contains,
}
