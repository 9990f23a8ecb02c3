"""Update expressions: the grammar of SET, REMOVE, ADD and DELETE, bound to a request's values.

A parsed text is kept, by text and names, for later requests. What remains per request is looking
up the values and checking the types that are known without an item, in the service's order.
"""

from collections.abc import Mapping
from functools import lru_cache

from streamkit.local.expressions.assignments import (
    Given,
    IfNotExists,
    ListAppend,
    PlusMinus,
    ReadPath,
    Unusable,
    ValueExpression,
)
from streamkit.local.expressions.changes import ChangeKind, PathChange, Update
from streamkit.local.expressions.operands import (
    Literal,
    Values,
    needs_path,
    wrong_operand_count,
    wrong_operand_type,
)
from streamkit.local.expressions.parser import CONDITION_FUNCTIONS, Parser, invalid
from streamkit.local.expressions.paths import overlap
from streamkit.local.expressions.placeholders import Placeholders, undefined

_KIND = "UpdateExpression"
_TYPE_NAMES = {
    "S": "STRING",
    "N": "NUMBER",
    "B": "BINARY",
    "NULL": "NULL",
    "BOOL": "BOOLEAN",
    "L": "LIST",
    "M": "MAP",
}
_CLAUSES = {
    "SET": ChangeKind.SET,
    "REMOVE": ChangeKind.REMOVE,
    "ADD": ChangeKind.ADD,
    "DELETE": ChangeKind.DELETE,
}
_TAKEN = {"if_not_exists": None, "list_append": "L", "+": "N", "-": "N"}


class _Call:
    """A function or arithmetic operator as written, to be checked once the values are known."""

    def __init__(self, name: str, arguments: tuple[ValueExpression, ...]) -> None:
        self.name = name
        self._fault: str | None = None
        if len(arguments) != 2:
            self._fault = wrong_operand_count(name, len(arguments))
        elif name == "if_not_exists" and not isinstance(arguments[0], ReadPath):
            self._fault = needs_path(name)
        self._literals = tuple(one.literal for one in arguments if isinstance(one, Given))

    def complaint(self, values: Values) -> str | None:
        """Return what is wrong with this call in a request with these values, if anything."""
        wanted = _TAKEN[self.name]
        if self._fault or wanted is None:
            return self._fault
        for literal in self._literals:
            type_name = literal.type_name(values)
            if type_name != wanted:
                return wrong_operand_type(self.name, str(type_name))
        return None


class _UpdateTree:
    """A parsed update, free of any request's values."""

    __slots__ = ("_calls", "_literals", "_overlap", "changes", "names", "values")

    def __init__(
        self, changes: tuple[PathChange, ...], calls: tuple[_Call, ...], parser: Parser
    ) -> None:
        self.changes = changes
        self.names = frozenset(parser.names_used)
        self.values = tuple(parser.values_used)
        self._calls = calls
        self._overlap = overlap([change.path for change in changes])
        self._literals = tuple(
            (change.kind, change.value.literal)
            for change in changes
            if change.kind in (ChangeKind.ADD, ChangeKind.DELETE)
            and isinstance(change.value, Given)
        )

    def complaint(self, values: Values) -> str | None:
        """Return what is wrong with this update in a request with these values, if anything."""
        for reference in self.values:
            if reference not in values:
                return undefined(reference)
        if self._overlap:
            return self._overlap
        for kind, literal in self._literals:
            shown = _TYPE_NAMES.get(str(literal.type_name(values)))
            if shown is not None and not (kind is ChangeKind.ADD and shown == "NUMBER"):
                return (
                    "Incorrect operand type for operator or function; "
                    f"operator: {kind.name}, operand type: {shown}"
                )
        for call in self._calls:
            wrong = call.complaint(values)
            if wrong:
                return wrong
        return None


def parse_update(text: str, placeholders: Placeholders) -> Update:
    """Parse an UpdateExpression and bind it to a request.

    Args:
        text: the expression.
        placeholders: those of the request; what the expression uses is noted there.

    Raises:
        ApiError: ValidationException, with the service's message.
    """
    tree = _parsed(text, placeholders.names_key)
    placeholders.use(tree.names, tree.values)
    complaint = tree.complaint(placeholders.values)
    if complaint:
        raise invalid(_KIND, complaint)
    return Update(tree.changes, placeholders.values)


@lru_cache(maxsize=4096)
def _parsed(text: str, names: tuple[tuple[str, str], ...]) -> _UpdateTree:
    return _UpdateParser(text, dict(names)).parse()


class _UpdateParser(Parser):
    """Recursive descent over the clauses."""

    keywords = frozenset(_CLAUSES)
    fault_order = ("parentheses", "reserved", "function", "misuse", "section", "name")

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        super().__init__(text, _KIND, names)
        self._changes: list[PathChange] = []
        self._calls: list[_Call] = []

    def parse(self) -> _UpdateTree:
        """Parse the whole text."""
        seen: set[str] = set()
        while True:
            clause = self.word()
            if clause not in _CLAUSES:
                if not seen:
                    raise self.syntax_error()
                break
            self.advance()
            if clause in seen:
                self.fault(
                    "section",
                    f'The "{clause}" section can only be used once in an update expression;',
                )
            seen.add(clause)
            self._clause(_CLAUSES[clause])
        for path in self.paths:
            for reference in path.missing:
                self.fault("name", undefined(reference))
        self.finish()
        return _UpdateTree(tuple(self._changes), tuple(self._calls), self)

    def _clause(self, kind: ChangeKind) -> None:
        while True:
            path = self.path()
            value: ValueExpression | None = None
            if kind is ChangeKind.SET:
                self.expect("=")
                value = self._value()
            elif kind is not ChangeKind.REMOVE:
                value = Given(self.literal())
            self._changes.append(PathChange(kind, path.steps, value))
            if not self.take(","):
                return

    def _value(self) -> ValueExpression:
        if not self.at_symbol("("):
            return self._sum(self._operand())
        self.open_parenthesis()
        inner = self._value()
        self.close_parenthesis(inner)
        # Arithmetic does not nest, so `(a + b) + c` is left to be a syntax error.
        return inner if isinstance(inner, PlusMinus) else self._sum(inner)

    def _sum(self, left: ValueExpression) -> ValueExpression:
        if not (self.at_symbol("+") or self.at_symbol("-")):
            return left
        operator = self.advance().text
        self.count_operator()
        right = self._operand()
        self._calls.append(_Call(operator, (left, right)))
        return PlusMinus(operator, left, right)

    def _operand(self) -> ValueExpression:
        if self.at_symbol("("):
            self.open_parenthesis()
            inner = self._operand()
            self.close_parenthesis(inner)
            return inner
        if self.at_function():
            return self._function()
        if self.token.text[0] == ":":
            literal: Literal = self.literal()
            return Given(literal)
        return ReadPath(self.path())

    def _function(self) -> ValueExpression:
        name = self.advance().text
        self.count_operator()
        self.expect("(")
        arguments = [self._operand()]
        while self.take(","):
            arguments.append(self._operand())
        self.expect(")")
        if any(isinstance(one, ListAppend) for one in arguments):
            self.misused("list_append")
        if name not in ("if_not_exists", "list_append"):
            if name in CONDITION_FUNCTIONS:
                message = f"The function is not allowed in an update expression; function: {name}"
            else:
                message = f"Invalid function name; function: {name}"
            self.fault("function", message)
            return Unusable()
        self._calls.append(_Call(name, tuple(arguments)))
        if len(arguments) != 2:
            return Unusable()
        first, second = arguments
        if name == "list_append":
            return ListAppend(first, second)
        return IfNotExists(first.path, second) if isinstance(first, ReadPath) else Unusable()
