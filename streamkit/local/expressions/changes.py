"""Applying an update to an item.

Everything is computed from the item as it was; then values are put in place, list elements in the
order of their indexes, and removals follow from the highest index down, so that indexes mean what
they meant in the old item. The old item stays as it is; the new one shares what did not change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from streamkit.local.arithmetic import add_numbers
from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions.assignments import ValueExpression, wrong_type
from streamkit.local.expressions.operands import Values
from streamkit.local.expressions.paths import DocumentPath, child, read_path
from streamkit.local.values import AttributeValue, Item, nesting, nesting_error

_LEVELS = 32
_SETS = ("SS", "NS", "BS")


class ChangeKind(Enum):
    """The clause a change stands in."""

    SET = auto()
    REMOVE = auto()
    ADD = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class PathChange:
    """One change of one path; `value` is None for REMOVE only."""

    kind: ChangeKind
    path: DocumentPath
    value: ValueExpression | None


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The item after an update, and the paths the update named."""

    item: Item
    paths: tuple[DocumentPath, ...]


class Update:
    """The changes of one request.

    Args:
        changes: in the order written; their paths do not overlap.
        values: what their placeholders stand for.
        mismatch: the message when ADD or DELETE meets a value of another type.

    Attributes:
        paths: what the update names, in the order written.
    """

    __slots__ = ("_changes", "_mismatch", "_values", "paths")

    def __init__(
        self, changes: Iterable[PathChange], values: Values, *, mismatch: str | None = None
    ) -> None:
        self._changes = tuple(changes)
        self._values = values
        self._mismatch = mismatch
        self.paths: tuple[DocumentPath, ...] = tuple(change.path for change in self._changes)

    @property
    def removes_only(self) -> bool:
        """Whether it has REMOVE and nothing else."""
        return all(change.kind is ChangeKind.REMOVE for change in self._changes)

    def check_keys(self, key_attributes: frozenset[str]) -> None:
        """Refuse an update that names an attribute of the primary key."""
        for path in self.paths:
            if path[0] in key_attributes:
                raise validation(
                    "One or more parameter values were invalid: Cannot update attribute "
                    f"{path[0]}. This attribute is part of the key"
                )

    def apply(self, item: Item, *, key_attributes: frozenset[str]) -> UpdateResult:
        """Apply all changes to an item, which for a new one holds just the key.

        Raises:
            ApiError: ValidationException; the item lacks something or has it in another type.
        """
        self.check_keys(key_attributes)
        assigned: list[tuple[DocumentPath, AttributeValue]] = []
        removed: list[DocumentPath] = []
        for change in self._changes:
            value = self._new_value(change, item)
            if value is not None:
                assigned.append((change.path, value))
            elif _is_there(item, change.path):
                removed.append(change.path)
        new = dict(item)
        if len(assigned) > 1:
            assigned.sort(key=_by_path)
        for path, value in assigned:
            if len(path) == 1:
                new[str(path[0])] = value
            else:
                _assign(new, path, value)
        for path in sorted(removed, reverse=True):
            _remove(new, path)
        return UpdateResult(new, self.paths)

    def _new_value(self, change: PathChange, item: Item) -> AttributeValue | None:
        """Return what the path is to hold afterwards, None when it is to be gone."""
        if change.value is None:
            return None
        value = change.value.compute(item, self._values)
        if change.kind is ChangeKind.SET:
            return value
        current = read_path(item, change.path)
        if change.kind is ChangeKind.ADD:
            return value if current is None else self._sum(current, value)
        return None if current is None else self._difference(current, value)

    def _sum(self, current: AttributeValue, added: AttributeValue) -> AttributeValue:
        ((kind, old),) = current.items()
        if kind not in added or kind not in ("N", "L", *_SETS):
            raise self._mismatched()
        if kind == "N":
            return {"N": add_numbers(old, added["N"])}
        if kind == "L":
            return {"L": [*old, *added["L"]]}
        return {kind: list(dict.fromkeys([*old, *added[kind]]))}

    def _difference(
        self, current: AttributeValue, removed: AttributeValue
    ) -> AttributeValue | None:
        ((kind, old),) = current.items()
        if kind not in removed or kind not in _SETS:
            raise self._mismatched()
        gone = set(removed[kind])
        left = [member for member in old if member not in gone]
        return {kind: left} if left else None

    def _mismatched(self) -> ApiError:
        return validation(self._mismatch) if self._mismatch else wrong_type()


def _by_path(assignment: tuple[DocumentPath, AttributeValue]) -> DocumentPath:
    # Where two paths first differ they have steps of one type: otherwise they would conflict.
    return assignment[0]


def _invalid_path() -> ApiError:
    return validation("The document path provided in the update expression is invalid for update")


def _is_there(item: Item, path: DocumentPath) -> bool:
    if len(path) == 1:
        return path[0] in item
    parent = read_path(item, path[:-1])
    if parent is None or ("L" if isinstance(path[-1], int) else "M") not in parent:
        raise _invalid_path()
    return child(parent, path[-1]) is not None


def _assign(item: Item, path: DocumentPath, value: AttributeValue) -> None:
    if len(path) - 1 + nesting(value) > _LEVELS:
        raise nesting_error()
    head = str(path[0])
    item[head] = _assigned(item.get(head), path[1:], value)


def _assigned(
    container: AttributeValue | None, steps: DocumentPath, value: AttributeValue
) -> AttributeValue:
    """Return a copy of a container in which the value stands at the end of the steps."""
    if not steps:
        return value
    if container is None:
        raise _invalid_path()
    step = steps[0]
    if isinstance(step, int):
        if "L" not in container:
            raise _invalid_path()
        elements = list(container["L"])
        if step < len(elements):
            elements[step] = _assigned(elements[step], steps[1:], value)
        else:
            elements.append(_assigned(None, steps[1:], value))
        return {"L": elements}
    if "M" not in container:
        raise _invalid_path()
    members = dict(container["M"])
    members[step] = _assigned(members.get(step), steps[1:], value)
    return {"M": members}


def _remove(item: Item, path: DocumentPath) -> None:
    head = str(path[0])
    if len(path) == 1:
        del item[head]
    else:
        item[head] = _without(item[head], path[1:])


def _without(container: AttributeValue, steps: DocumentPath) -> AttributeValue:
    """Return a copy of a container without what the steps, which it has, lead to."""
    step = steps[0]
    kind = "L" if isinstance(step, int) else "M"
    members = container[kind].copy()
    if len(steps) == 1:
        del members[step]
    else:
        members[step] = _without(members[step], steps[1:])
    return {kind: members}
