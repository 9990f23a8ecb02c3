"""Cuts the text of an expression into tokens.

Nothing is refused here: a character that begins no token becomes a token of its own, which no
grammar rule takes, so that the parser reports it with its surroundings as the service does.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<NAME>[A-Za-z][A-Za-z0-9_]*)
      | (?P<NAME_REF>\#[A-Za-z0-9_]+)
      | (?P<VALUE_REF>:[A-Za-z0-9_]+)
      | (?P<NUMBER>[0-9]+)
      | (?P<SYMBOL><>|<=|>=|[=<>()\[\].,+-])
      | (?P<UNKNOWN>[^ \t\r\n])
    )""",
    re.VERBOSE,
)


class TokenKind(Enum):
    """What a token can be used as."""

    NAME = auto()
    NAME_REF = auto()
    VALUE_REF = auto()
    NUMBER = auto()
    SYMBOL = auto()
    UNKNOWN = auto()
    END = auto()


_KINDS = {kind.name: kind for kind in TokenKind}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text and where it stands."""

    kind: TokenKind
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """Return all tokens of an expression, closed by one of kind END."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        tokens.append(Token(_KINDS[kind], match[kind], match.start(kind), match.end(kind)))
    tokens.append(Token(TokenKind.END, "<EOF>", len(text), len(text)))
    return tokens
