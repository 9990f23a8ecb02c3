"""The grammar of condition and filter expressions: from a text to a tree without values.

`NOT` binds tighter than `AND`, `AND` tighter than `OR`.
"""

from collections.abc import Mapping

from streamkit.local.expressions.functions import FUNCTIONS
from streamkit.local.expressions.operands import Operand, Path, Size, wrong_operand_type
from streamkit.local.expressions.parser import UPDATE_FUNCTIONS, Parser, invalid
from streamkit.local.expressions.paths import DocumentPath
from streamkit.local.expressions.predicates import (
    Between,
    Equality,
    In,
    Junction,
    Leaf,
    Node,
    Not,
    Ordering,
)

_COMPARATORS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_IN_LIMIT = 100
# No function takes what another one returns, so that calls which nest deeper are refused anyway.
_CALL_LIMIT = 50


class ConditionTree:
    """A parsed condition, free of any request's values."""

    __slots__ = ("leaves", "names", "paths", "root", "values")

    def __init__(self, root: Node, leaves: tuple[Leaf, ...], parser: "ConditionParser") -> None:
        self.root = root
        self.leaves = leaves
        self.names = frozenset(parser.names_used)
        self.values = frozenset(parser.values_used)
        self.paths: tuple[DocumentPath, ...] = tuple(path.steps for path in parser.paths)


class _Group:
    """What was read of a parenthesis, or of the whole text.

    Attributes:
        alternatives: the parts of its OR that are complete.
        conjunction: the parts so far of the AND that is read.
        negations: how many NOT stand before the term that is read.
    """

    __slots__ = ("alternatives", "conjunction", "negations")

    def __init__(self) -> None:
        self.alternatives: list[Node] = []
        self.conjunction: list[Node] = []
        self.negations = 0


class ConditionParser(Parser):
    """Only once it is read is it known what a parenthesis holds: a condition or an operand."""

    keywords = frozenset({"AND", "BETWEEN", "IN", "NOT", "OR"})
    fault_order = ("parentheses", "function", "misuse", "reserved")

    def __init__(
        self,
        text: str,
        kind: str,
        names: Mapping[str, str],
        redundant_parentheses: bool,
    ) -> None:
        super().__init__(text, kind, names)
        self.allows_redundant_parentheses = redundant_parentheses
        self._leaves: list[Leaf] = []
        self._calls = 0

    def parse(self) -> ConditionTree:
        """Parse the whole text."""
        root = self._as_condition(self._expression())
        self.finish()
        return ConditionTree(root, tuple(self._leaves), self)

    def _expression(self) -> Node | Operand:
        """Read terms; a list keeps the open parentheses, of which hundreds may nest."""
        outer: list[_Group] = []
        group = _Group()
        while True:
            group.negations = self._negations()
            if self.take("("):
                outer.append(group)
                group = _Group()
                continue
            term = self._negated(group, self._comparison(self._primary()))
            while not self._goes_on(group, term):
                term = self._joined(group, term)
                if not outer:
                    return term
                group = outer.pop()
                term = self._negated(group, self._comparison(self._after_parenthesis(term)))

    def _negations(self) -> int:
        negations = 0
        while self.word() == "NOT":
            self.advance()
            self.count_operator()
            negations += 1
        return negations

    def _negated(self, group: _Group, term: Node | Operand) -> Node | Operand:
        if not group.negations:
            return term
        node = self._as_condition(term)
        return Not(node) if group.negations % 2 else Not(Not(node))

    def _goes_on(self, group: _Group, term: Node | Operand) -> bool:
        """Return whether AND or OR follows a term, which then becomes a part of its group."""
        keyword = self.word()
        if keyword not in ("AND", "OR"):
            return False
        group.conjunction.append(self._as_condition(term))
        self.advance()
        self.count_operator()
        if keyword == "OR":
            group.alternatives.append(_junction("AND", group.conjunction))
            group.conjunction = []
        return True

    def _joined(self, group: _Group, term: Node | Operand) -> Node | Operand:
        """Return all of a group with its last term."""
        if not group.alternatives and not group.conjunction:
            return term
        group.conjunction.append(self._as_condition(term))
        group.alternatives.append(_junction("AND", group.conjunction))
        return _junction("OR", group.alternatives)

    def _after_parenthesis(self, inner: Node | Operand) -> Node | Operand:
        self.close_around(inner)
        if isinstance(inner, Path) and (self.at_symbol(".") or self.at_symbol("[")):
            self.paths.remove(inner)
            return self.path_from(list(inner.steps), list(inner.missing))
        return inner

    def _comparison(self, subject: Node | Operand) -> Node | Operand:
        if not isinstance(subject, Leaf | Junction | Not):
            return self._comparison_of(subject)
        operator = self.word() or self.token.text
        if operator not in _COMPARATORS and operator not in ("BETWEEN", "IN"):
            return subject
        # A condition stands where only an operand can: `contains(a, b) = c`.
        if isinstance(subject, Leaf) and subject.name in FUNCTIONS:
            self.misused(subject.name)
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
        if self.at_function():
            return self._function()
        return self.literal() if self.token.text[0] == ":" else self.path()

    def _operand(self) -> Operand:
        """Return the operand that begins here; a condition cannot."""
        opened = 0
        while self.take("("):
            opened += 1
        term = self._primary()
        for _ in range(opened):
            term = self._after_parenthesis(term)
        if isinstance(term, Leaf) and term.name in FUNCTIONS:
            self.misused(term.name)
            return Size(())
        if isinstance(term, Leaf | Junction | Not):
            raise self.syntax_error()
        return term

    def _function(self) -> Leaf | Size:
        name = self.advance().text
        self.count_operator()
        make = FUNCTIONS.get(name)
        if name in UPDATE_FUNCTIONS:
            message = f"The function is not allowed in a condition expression; function: {name}"
            self.fault("function", message)
        elif make is None and name != "size":
            self.fault("function", f"Invalid function name; function: {name}")
        self._calls += 1
        if self._calls > _CALL_LIMIT:
            raise self.first_fault() or invalid(self.kind, wrong_operand_type("size", "N"))
        arguments = self._operands()
        self._calls -= 1
        return Size(arguments) if make is None else self._leaf(make(name, arguments))

    def _operands(self) -> tuple[Operand, ...]:
        self.expect("(")
        operands = [self._operand()]
        while self.take(","):
            operands.append(self._operand())
        self.expect(")")
        return tuple(operands)

    def _leaf(self, leaf: Leaf) -> Leaf:
        self._leaves.append(leaf)
        return leaf

    def _as_condition(self, term: Node | Operand) -> Node:
        if isinstance(term, Leaf | Junction | Not):
            return term
        if isinstance(term, Size):
            self.misused("size")
            return Junction("AND", ())
        raise self.syntax_error()


def _junction(name: str, parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Junction(name, tuple(parts))
