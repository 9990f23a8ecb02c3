"""What the grammars of all expressions share: the walk over the tokens, paths, and complaints.

A syntax error ends the parse at once. Other faults (`fault`) wait until the whole text is read,
because the service reports them in an order of its own, not in the order of the text; `finish`
raises the first by that order. Names (`#n`) are resolved here, values (`:v`) only later, so that
a parsed text can be kept for all requests that use the same names.
"""

from collections.abc import Mapping, Sequence

from streamkit.local.errors import ApiError, validation
from streamkit.local.expressions.lexer import Token, TokenKind, tokenize
from streamkit.local.expressions.operands import Literal, Path
from streamkit.local.expressions.reserved import RESERVED_WORDS

CONDITION_FUNCTIONS = frozenset(
    {
        "attribute_exists",
        "attribute_not_exists",
        "attribute_type",
        "begins_with",
        "contains",
        "size",
    }
)
UPDATE_FUNCTIONS = frozenset({"if_not_exists", "list_append"})

_TEXT_LIMIT = 4096
_OPERATOR_LIMIT = 300
_PATH_LIMIT = 32
_INDEX_LIMIT = 2**31 - 1
_REDUNDANT = "The expression has redundant parentheses;"
# What nests on Python's own stack must not exhaust it: deeper than this are only expressions that
# the service refuses, because of parentheses around parentheses or of the number of operators.
_DEPTH_LIMIT = 300


def invalid(kind: str, message: str) -> ApiError:
    """Return a ValidationException about one expression parameter."""
    return validation(f"Invalid {kind}: {message}")


class Parser:
    """A position in the tokens of one expression, and what was noticed so far.

    Args:
        text: the expression.
        kind: the parameter it came in, `FilterExpression` for example, for messages.
        names: ExpressionAttributeNames.
    """

    keywords: frozenset[str] = frozenset()
    allows_redundant_parentheses = False
    fault_order: Sequence[str] = ("reserved", "name")

    def __init__(self, text: str, kind: str, names: Mapping[str, str]) -> None:
        if not text:
            raise invalid(kind, "The expression can not be empty;")
        size = len(text.encode())
        if size > _TEXT_LIMIT:
            raise invalid(
                kind,
                f"Expression size has exceeded the maximum allowed size; expression size: {size}",
            )
        self.kind = kind
        self.names_used: set[str] = set()
        self.values_used: dict[str, None] = {}
        self.paths: list[Path] = []
        self._text = text
        self._names = names
        self._tokens = tokenize(text)
        self._position = 0
        self.token = self._tokens[0]
        self._faults: dict[str, str] = {}
        self._operators = 0
        self._depth = 0
        # What the last closed parenthesis held: if the next one closes around just that, one of
        # the two was redundant.
        self._parenthesized: object = None

    def advance(self) -> Token:
        """Step over the current token and return it."""
        token = self.token
        self._position += 1
        self.token = self._tokens[self._position]
        return token

    def at_symbol(self, symbol: str) -> bool:
        """Return whether the current token is this symbol."""
        return self.token.kind is TokenKind.SYMBOL and self.token.text == symbol

    def take(self, symbol: str) -> bool:
        """Step over this symbol if it is the current token."""
        if self.at_symbol(symbol):
            self.advance()
            return True
        return False

    def expect(self, symbol: str) -> None:
        """Step over this symbol; anything else is a syntax error."""
        if not self.take(symbol):
            raise self.syntax_error()

    def word(self) -> str:
        """Return the current token in upper case if it is a word, so that it may be a keyword."""
        return self.token.text.upper() if self.token.kind is TokenKind.NAME else ""

    def expect_word(self, word: str) -> None:
        """Step over this keyword; anything else is a syntax error."""
        if self.word() != word:
            raise self.syntax_error()
        self.advance()

    def at_function(self) -> bool:
        """Return whether a function call begins here."""
        if self.token.kind is not TokenKind.NAME or self.word() in self.keywords:
            return False
        following = self._tokens[self._position + 1]
        return following.kind is TokenKind.SYMBOL and following.text == "("

    def syntax_error(self) -> ApiError:
        """Return the complaint about the current token, with the token before and after it."""
        at = self._position
        first = self._tokens[max(at - 1, 0)]
        last = self._tokens[min(at + 1, len(self._tokens) - 1)]
        near = self._text[first.start : last.end].rstrip(" \t\r\n")
        return invalid(self.kind, f'Syntax error; token: "{self.token.text}", near: "{near}"')

    def fault(self, category: str, message: str) -> None:
        """Note a fault other than syntax; the first of each category counts."""
        self._faults.setdefault(category, message)

    def finish(self) -> None:
        """Require the end of the text; raise the most important fault noted."""
        if self.token.kind is not TokenKind.END:
            raise self.syntax_error()
        fault = self.first_fault()
        if fault is not None:
            raise fault

    def first_fault(self) -> ApiError | None:
        """Return the most important fault noted so far."""
        for category in self.fault_order:
            if category in self._faults:
                return invalid(self.kind, self._faults[category])
        return None

    def misused(self, function: str) -> None:
        """Note that a function stands where the grammar allows none."""
        self.fault(
            "misuse",
            "The function is not allowed to be used this way in an expression; "
            f"function: {function}",
        )

    def count_operator(self) -> None:
        """Count an operator, `AND` and `NOT` too, or a function towards an expression's limit."""
        self._operators += 1
        if self._operators > _OPERATOR_LIMIT:
            raise invalid(
                self.kind,
                "The expression contains too many operators; "
                f"operator count: {_OPERATOR_LIMIT + 1}",
            )

    def open_parenthesis(self) -> None:
        """Go into a parenthesis on Python's own stack."""
        self.expect("(")
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise invalid(self.kind, _REDUNDANT)

    def close_parenthesis(self, inner: object) -> None:
        """Come out of a parenthesis that `open_parenthesis` went into."""
        self._depth -= 1
        self.close_around(inner)

    def close_around(self, inner: object) -> None:
        """Step over the end of a parenthesis; note a fault if it holds just another one."""
        self.expect(")")
        if inner is self._parenthesized and not self.allows_redundant_parentheses:
            self.fault("parentheses", _REDUNDANT)
        self._parenthesized = inner

    def literal(self) -> Literal:
        """Read a `:value`."""
        if self.token.kind is not TokenKind.VALUE_REF:
            raise self.syntax_error()
        reference = self.advance().text
        self.values_used[reference] = None
        return Literal(reference)

    def path(self) -> Path:
        """Read a document path."""
        missing: list[str] = []
        return self.path_from([self._step(missing)], missing)

    def path_from(self, steps: list[str | int], missing: list[str]) -> Path:
        """Read the rest of a document path of which some steps are known."""
        while True:
            if self.take("."):
                steps.append(self._step(missing))
            elif self.take("["):
                steps.append(self._index())
                self.expect("]")
            else:
                break
        if len(steps) > _PATH_LIMIT:
            raise invalid(
                self.kind,
                f"The document path has too many nesting levels; nesting levels: {len(steps)}",
            )
        path = Path(tuple(steps), tuple(missing))
        self.paths.append(path)
        return path

    def _step(self, missing: list[str]) -> str:
        if self.token.kind is TokenKind.NAME and self.word() not in self.keywords:
            name = self.advance().text
            if name.upper() in RESERVED_WORDS:
                self.fault(
                    "reserved",
                    f"Attribute name is a reserved keyword; reserved keyword: {name}",
                )
            return name
        if self.token.kind is not TokenKind.NAME_REF:
            raise self.syntax_error()
        reference = self.advance().text
        self.names_used.add(reference)
        resolved = self._names.get(reference)
        if resolved is None:
            missing.append(reference)
            return reference
        return resolved

    def _index(self) -> int:
        if self.token.kind is not TokenKind.NUMBER:
            raise self.syntax_error()
        digits = self.advance().text
        if len(digits) > 10 or int(digits) > _INDEX_LIMIT:
            raise invalid(
                self.kind,
                f"List index is not within the allowable range; index: [{digits}]",
            )
        return int(digits)
