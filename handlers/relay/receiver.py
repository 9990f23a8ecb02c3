"""Receivers: the demo's own search index and webhook receiver, a few lines of HTTP each."""

import hashlib
import hmac
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from handlers.relay.arrived import Arrival

_OLD_SECONDS = 300
"""A signature older than this is refused, so that a request cannot be played again later."""


@dataclass
class HookReceiver:
    """Takes posts that are signed, and has no time now and then."""

    secret: str
    rng: random.Random
    arrivals: list[Arrival] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a post."""
        if self.rng.random() < 0.05:
            return httpx.Response(503, headers={"Retry-After": "0"})
        headers, body = request.headers, request.content
        if not self._is_signed(headers["X-Streamkit-Signature"], body):
            return httpx.Response(401)
        self.arrivals.append(
            Arrival(
                key=headers["Idempotency-Key"],
                id=headers["X-Streamkit-Id"],
                sequence=headers["X-Streamkit-Sequence"],
                body=json.loads(body),
            )
        )
        return httpx.Response(204)

    def _is_signed(self, header: str, body: bytes) -> bool:
        parts = dict(part.split("=", 1) for part in header.split(","))
        signed = parts["t"].encode() + b"." + body
        expected = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        fresh = abs(time.time() - int(parts["t"])) < _OLD_SECONDS
        return fresh and hmac.compare_digest(expected, parts["v1"])


@dataclass
class SearchIndex:
    """Keeps documents by the bulk API with external versions: an older one is a conflict."""

    documents: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a bulk request."""
        lines = iter(request.content.decode().splitlines())
        items: list[dict[str, Any]] = []
        for line in lines:
            ((verb, about),) = json.loads(line).items()
            document = json.loads(next(lines)) if verb == "index" else None
            items.append({verb: self._result(about["_id"], about["version"], document)})
        return httpx.Response(200, json={"items": items})

    def _result(self, name: str, version: int, document: Any) -> dict[str, Any]:
        if version < self.versions.get(name, 0):
            return {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
        self.versions[name] = version
        if document is not None:
            self.documents[name] = document
        else:
            self.documents.pop(name, None)
        return {"status": 200}
