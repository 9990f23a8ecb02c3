"""Condition and filter expressions: the grammar, and a condition bound to a request's values.

`NOT` binds tighter than `AND`, `AND` tighter than `OR`. A parsed text is kept, by text and names,
for later requests; what remains per request is looking up the values and checking their types.
"""

from collections.abc import Mapping
from functools import lru_cache

from streamkit.local.expressions.operands import Operand, Path, Size, Values
from streamkit.local.expressions.parser import UPDATE_FUNCTIONS, Parser, invalid
from streamkit.local.expressions.paths import DocumentPath
from streamkit.local.expressions.placeholders import Placeholders
from streamkit.local.expressions.predicates import (
    FUNCTIONS,
    Between,
    Equality,
    In,
    Junction,
    Leaf,
    Node,
    Not,
    Ordering,
)
from streamkit.local.values import Item

_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_IN_LIMIT = 100


class ConditionTree:
    """A parsed condition, free of any request's values."""

    __slots__ = ("leaves", "names", "paths", "root", "values")

    def __init__(self, root: Node, leaves: tuple[Leaf, ...], parser: "_ConditionParser") -> None:
        self.root = root
        self.leaves = leaves
        self.names = frozenset(parser.names_used)
        self.values = frozenset(parser.values_used)
        self.paths: tuple[DocumentPath, ...] = tuple(path.steps for path in parser.paths)


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
        """Whether an item meets the condition; None stands for an item that does not exist."""
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
    """The parsed text, after its check against the values of a request."""
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
    parser = _ConditionParser(text, kind, dict(names))
    parser.allows_redundant_parentheses = redundant_parentheses
    return parser.parse()


class _ConditionParser(Parser):
    """Recursive descent; only once it is read is it known what a parenthesis holds."""

    keywords = frozenset({"AND", "BETWEEN", "IN", "NOT", "OR"})
    fault_order = ("parentheses", "function", "misuse", "reserved")
    allows_redundant_parentheses = False

    def __init__(self, text: str, kind: str, names: Mapping[str, str]) -> None:
        super().__init__(text, kind, names)
        self._leaves: list[Leaf] = []
        # What the last closed parenthesis held: if the next one closes around just that, one of
        # the two was redundant.
        self._parenthesized: Node | Operand | None = None

    def parse(self) -> ConditionTree:
        """Parse the whole text."""
        root = self._as_condition(self._disjunction())
        self.finish()
        return ConditionTree(root, tuple(self._leaves), self)

    def _disjunction(self) -> Node | Operand:
        alternatives: list[Node] = []
        conjunction: list[Node] = []
        while True:
            term = self._negation()
            keyword = self.word()
            if keyword not in ("AND", "OR"):
                break
            conjunction.append(self._as_condition(term))
            self.advance()
            if keyword == "OR":
                alternatives.append(_junction("AND", conjunction))
                conjunction = []
        if not alternatives and not conjunction:
            return term
        conjunction.append(self._as_condition(term))
        alternatives.append(_junction("AND", conjunction))
        return _junction("OR", alternatives)

    def _negation(self) -> Node | Operand:
        negations = 0
        while self.word() == "NOT":
            self.advance()
            negations += 1
        term = self._comparison()
        if not negations:
            return term
        node = self._as_condition(term)
        return Not(node) if negations % 2 else Not(Not(node))

    def _comparison(self) -> Node | Operand:
        subject = self._primary()
        if not isinstance(subject, Leaf | Junction | Not):
            return self._comparison_of(subject)
        operator = self.word() or self.token.text
        if operator not in _COMPARATORS and operator not in ("BETWEEN", "IN"):
            return subject
        # A condition stands where only an operand can: `contains(a, b) = c`.
        if isinstance(subject, Leaf) and subject.name in FUNCTIONS:
            self._misused(subject.name)
            return self._comparison_of(Size(()))
        raise self.syntax_error()

    def _comparison_of(self, subject: Operand) -> Node | Operand:
        if self.token.text in _COMPARATORS:
            name = self.advance().text
            self.count_operator()
            right = self._operand()
            leaf_type = Equality if name in ("=", "<>") else Ordering
            return self._leaf(leaf_type(name, subject, right))
        if self.word() == "BETWEEN":
            self.advance()
            self.count_operator()
            low = self._operand()
            self.expect_word("AND")
            return self._leaf(Between(subject, low, self._operand()))
        if self.word() == "IN":
            self.advance()
            self.count_operator()
            options = self._operands()
            if len(options) > _IN_LIMIT:
                raise invalid(
                    self.kind,
                    "The IN operator is provided with too many operands; "
                    f"number of operands: {len(options)}",
                )
            return self._leaf(In(subject, options))
        return subject

    def _primary(self) -> Node | Operand:
        if self.at_symbol("("):
            return self._in_parentheses()
        if self.at_function():
            return self._function()
        return self._plain_operand()

    def _operand(self) -> Operand:
        """An operand where a condition cannot stand."""
        term = self._primary()
        if isinstance(term, Leaf) and term.name in FUNCTIONS:
            self._misused(term.name)
            return Size(())
        if isinstance(term, Leaf | Junction | Not):
            raise self.syntax_error()
        return term

    def _plain_operand(self) -> Operand:
        return self.literal() if self.token.text[0] == ":" else self.path()

    def _in_parentheses(self) -> Node | Operand:
        self.expect("(")
        self.enter()
        inner = self._disjunction()
        self.expect(")")
        self.leave()
        if inner is self._parenthesized and not self.allows_redundant_parentheses:
            self.fault("parentheses", "The expression has redundant parentheses;")
        if isinstance(inner, Path) and (self.at_symbol(".") or self.at_symbol("[")):
            self.paths.remove(inner)
            return self.path_from(list(inner.steps), list(inner.missing))
        self._parenthesized = inner
        return inner

    def _function(self) -> Leaf | Size:
        name = self.advance().text
        self.count_operator()
        arguments = self._operands()
        if name == "size":
            return Size(arguments)
        make = FUNCTIONS.get(name)
        if make is not None:
            return self._leaf(make(name, arguments))
        if name in UPDATE_FUNCTIONS:
            message = f"The function is not allowed in a condition expression; function: {name}"
        else:
            message = f"Invalid function name; function: {name}"
        self.fault("function", message)
        return Size(arguments)

    def _operands(self) -> tuple[Operand, ...]:
        self.expect("(")
        self.enter()
        operands = [self._operand()]
        while self.take(","):
            operands.append(self._operand())
        self.expect(")")
        self.leave()
        return tuple(operands)

    def _leaf(self, leaf: Leaf) -> Leaf:
        self._leaves.append(leaf)
        return leaf

    def _as_condition(self, term: Node | Operand) -> Node:
        if isinstance(term, Leaf | Junction | Not):
            return term
        if isinstance(term, Size):
            self._misused("size")
            return Junction("AND", ())
        raise self.syntax_error()

    def _misused(self, function: str) -> None:
        self.fault(
            "misuse",
            "The function is not allowed to be used this way in an expression; "
            f"function: {function}",
        )


def _junction(name: str, parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Junction(name, tuple(parts))
