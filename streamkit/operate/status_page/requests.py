"""Requests: what a browser asks the status page for, and whether it may. Pure.

Without a token the page can be read, and changes nothing. With one, the page itself asks for it
(HTTP Basic, any name; or `Authorization: Bearer`), and shows actions. An action is a form that is
posted: it carries a text that only the page knows, so that no other site can make a browser that is
logged in send it, and a browser that says where a form came from must say: from here.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

_FIELDS_MAX = 20


@dataclass(frozen=True, slots=True)
class BrowserRequest:
    """One request; names of headers are in lower case. `query` and `body` are form fields."""

    path: str
    method: str = "GET"
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def asked(self) -> dict[str, str]:
        """Return the fields of the query."""
        return fields_of(self.query)

    @property
    def form(self) -> dict[str, str]:
        """Return the fields of a form that was posted."""
        return fields_of(self.body)


def fields_of(text: str) -> dict[str, str]:
    """Return form fields; the last one of two with one name; none if there are too many."""
    try:
        found = parse_qs(text, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in found.items()}


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in; without a `token` everyone may look, and no one may act."""

    token: str | None = None

    def admits(self, request: BrowserRequest) -> bool:
        """Return whether a request may see the page; the comparison always takes the same time."""
        if self.token is None:
            return True
        given = _token_of(request.headers.get("authorization", ""))
        return hmac.compare_digest(given.encode(), self.token.encode())

    def lets_act(self, request: BrowserRequest) -> bool:
        """Return whether a posted form comes from the page itself, and its sender may act."""
        if self.token is None or not self.admits(request) or not comes_from_here(request):
            return False
        return hmac.compare_digest(request.form.get("proof", "").encode(), self.proof.encode())

    @property
    def proof(self) -> str:
        """Return the text that a form of the page carries; empty without a token."""
        if self.token is None:
            return ""
        return hmac.new(self.token.encode(), b"streamkit form", hashlib.sha256).hexdigest()


def comes_from_here(request: BrowserRequest) -> bool:
    """Return whether no other site made the browser send this; other programs say nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def _token_of(header: str) -> str:
    """Return the token that a header carries; empty if it carries none."""
    scheme, _, given = header.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
