"""ExpressionAttributeNames and ExpressionAttributeValues of one request.

Both belong to all expressions of the request together: one instance is handed to every parse,
remembers what was used, and `finish` refuses the rest. Values are canonical once it exists.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.values import AttributeValue, canonical, name_complaint

_NAME = re.compile(r"#[A-Za-z0-9_]+").fullmatch
_VALUE = re.compile(r":[A-Za-z0-9_]+").fullmatch
_MOST_KEY_BYTES = 255
_WITHOUT_VALUES = frozenset({"ProjectionExpression"})


class Placeholders:
    """The substitution variables of a request, checked, and a note of which were used.

    Args:
        names: ExpressionAttributeNames as sent, None when absent.
        values: ExpressionAttributeValues as sent, None when absent.
        expressions: each expression parameter that the operation takes, in the order the
            service names them, with its text or None when absent.

    Raises:
        ApiError: they are malformed or empty, or were sent without any expression.
    """

    __slots__ = ("_names_used", "_values_used", "names", "names_key", "values")

    def __init__(
        self,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, AttributeValue] | None = None,
        *,
        expressions: Mapping[str, str | None],
    ) -> None:
        if names is not None and not any(text is not None for text in expressions.values()):
            raise validation(
                "ExpressionAttributeNames can only be specified when using expressions"
            )
        if values is not None:
            _check_has_place_for_values(expressions)
        self.names: Mapping[str, str] = {} if names is None else _checked_names(names)
        self.values: Mapping[str, AttributeValue] = {} if values is None else _canonical(values)
        self.names_key: tuple[tuple[str, str], ...] = tuple(self.names.items())
        self._names_used: set[str] = set()
        self._values_used: set[str] = set()

    def use(self, names: Iterable[str], values: Iterable[str]) -> None:
        """Note that an expression refers to these."""
        self._names_used.update(names)
        self._values_used.update(values)

    def finish(self) -> None:
        """Refuse names and values that no expression used; to be called after the last parse."""
        if len(self._names_used) < len(self.names):
            _refuse_unused("ExpressionAttributeNames", self.names, self._names_used)
        if len(self._values_used) < len(self.values):
            _refuse_unused("ExpressionAttributeValues", self.values, self._values_used)


def undefined(reference: str) -> str:
    """Return the complaint about a `#name` or `:value` that the request does not define."""
    if reference[0] == "#":
        return (
            "An expression attribute name used in the document path is not defined; "
            f"attribute name: {reference}"
        )
    return (
        "An expression attribute value used in expression is not defined; "
        f"attribute value: {reference}"
    )


def _check_has_place_for_values(expressions: Mapping[str, str | None]) -> None:
    places = [name for name in expressions if name not in _WITHOUT_VALUES]
    if any(expressions[name] is not None for name in places):
        return
    verb = "is" if len(places) == 1 else "are"
    raise validation(
        "ExpressionAttributeValues can only be specified when using expressions: "
        f"{' and '.join(places)} {verb} null"
    )


def _checked_names(names: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(names, dict):
        raise serialization("Unexpected field type")
    if not names:
        raise validation("ExpressionAttributeNames must not be empty")
    for key, name in names.items():
        _check_key("ExpressionAttributeNames", key, _NAME)
        if not isinstance(name, str):
            raise serialization("Unexpected token received from parser")
        complaint = name_complaint(name)
        if complaint:
            raise validation(
                f"ExpressionAttributeNames contains invalid value: {complaint} for key {key}"
            )
    return names


def _check_key(parameter: str, key: str, matches: Callable[[str], object]) -> None:
    if not matches(key):
        raise validation(f'{parameter} contains invalid key: Syntax error; key: "{key}"')
    if len(key) > _MOST_KEY_BYTES:
        raise validation(
            f"{parameter} contains invalid key: The expression attribute map contains a key that "
            f"is too long; size of key: {len(key)}"
        )


def _canonical(values: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    if not isinstance(values, dict):
        raise serialization("Unexpected field type")
    if not values:
        raise validation("ExpressionAttributeValues must not be empty")
    for key in values:
        _check_key("ExpressionAttributeValues", key, _VALUE)
    checked = {}
    for key, value in values.items():
        try:
            checked[key] = canonical(value)
        except ApiError as error:
            if error.code != "ValidationException":
                raise
            raise validation(
                f"ExpressionAttributeValues contains invalid value: {error.message} for key {key}"
            ) from None
    return checked


def _refuse_unused(parameter: str, given: Iterable[str], used: set[str]) -> None:
    unused = [key for key in given if key not in used]
    if unused:
        raise validation(
            f"Value provided in {parameter} unused in expressions: keys: {{{', '.join(unused)}}}"
        )
