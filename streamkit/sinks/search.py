"""A sink that writes documents of an OpenSearch or Elasticsearch index, by the bulk API.

In: deliveries; the body is the document, `id` its id, and the body None deletes it. Out: bulk
requests. Every operation carries an external version that follows from the sequence of its change
(see `versions`), with `external_gte`: an older change never replaces a newer one. A conflict (409)
means that an equal or newer version is there: it counts as delivered. An id must be of one item,
because sequences of two items cannot be compared.

Each operation has its own result. A document that the index rejects parks its change; an operation
that the index has no room for is tried again. After a deletion the index remembers the version
only as long as its setting `index.gc_deletes` (60 s unless set). Set it to the time by which a
request of a stopped worker may be late, such as an hour.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel

from streamkit.errors import ConfigurationError, PoisonChange
from streamkit.sinks.body import to_text
from streamkit.sinks.endpoint import LATER, Answer, Endpoint, HttpSink, Refused, fate
from streamkit.sinks.newest import Newest
from streamkit.sinks.sink import Delivery, Limits
from streamkit.sinks.versions import external_version

_TOO_LARGE = 413
_WHOLE = frozenset({400, _TOO_LARGE})
"""A request refused with these statuses is tried in halves. Other statuses (401, 403, 404) do not
blame the request."""


@dataclass(frozen=True)
class Search(HttpSink):
    """Write to a search index; needs the extra `search`.

    Args:
        name: the name of the sink.
        url: the cluster's address.
        index: the index, or an alias with one write index.
        headers: sent along, such as `Authorization`.
        auth: authentication for httpx, such as a pair of user and password.
        timeout: seconds for a whole call.
        items: operations in a call.
        size: bytes of documents in a call.
        calls: how many calls may be under way at once.
        pause_max: the longest pause in seconds that is granted when the cluster asks for one
            (`Retry-After`).
        transport: transport for httpx, for proxies or client certificates.

    Raises:
        DeclarationError: the URL is not one of HTTP, or a header's value is none.
    """

    index: str
    _: KW_ONLY
    timeout: float = 30.0
    items: int = 500
    size: int = 5_000_000
    calls: int = 2

    extra: ClassVar[str] = "search"

    @property
    def limits(self) -> Limits:
        """Return what one call takes."""
        # No time limit here: each request has its own, and may wait for a pause asked for.
        return Limits(self.items, self.size, self.calls, math.inf)

    def sender(self, endpoint: Endpoint) -> "SearchSender":
        """Return the sender that makes bulk requests."""
        return SearchSender(self, endpoint)


@dataclass(frozen=True)
class SearchSender:
    """An open search index."""

    sink: Search
    endpoint: Endpoint
    newest: Newest = field(default_factory=Newest)

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Put and delete documents, in the order of their sequences.

        Raises:
            Refused: the cluster took nothing.
            ConfigurationError: the cluster denies access, or the server is no such cluster.
        """
        errors: list[Exception | None] = [None] * len(deliveries)
        lines: dict[int, bytes] = {}
        for place in sorted(range(len(deliveries)), key=lambda one: deliveries[one].sequence):
            if self.newest.outdates(deliveries[place]):
                continue
            try:
                lines[place] = operation(self.sink.index, deliveries[place])
            except (TypeError, ValueError) as wrong:
                errors[place] = PoisonChange(f"{self.sink.name}: no document ({wrong})")
        for place, error in zip(lines, await self._bulk(list(lines.values())), strict=True):
            errors[place] = error
            if error is None:
                self.newest.note(deliveries[place])
        return errors

    async def _bulk(self, lines: Sequence[bytes]) -> list[Exception | None]:
        """Make one call; if it is refused as a whole, make two calls with half of it each."""
        if not lines:
            return []
        headers = {**self.sink.headers, "Content-Type": "application/x-ndjson"}
        url = f"{self.sink.url.rstrip('/')}/_bulk"
        answer = await self.endpoint.post(url, b"".join(lines), headers)
        error = fate(self.sink.name, answer)
        if error is None:
            return self._fates(answer, len(lines))
        if answer.status not in _WHOLE:
            raise error if isinstance(error, Refused) else ConfigurationError(str(error))
        if len(lines) == 1:
            return [error]
        half = len(lines) // 2
        return [*await self._bulk(lines[:half]), *await self._bulk(lines[half:])]

    def _fates(self, answer: Answer, count: int) -> list[Exception | None]:
        try:
            items = json.loads(answer.body)["items"]
            fates = [self._fate(result) for item in items for result in item.values()]
        except (ValueError, TypeError, KeyError, AttributeError):
            fates = []
        if len(fates) != count:
            raise Refused(f"{self.sink.name} gave an answer that does not belong to a bulk request")
        return fates

    def _fate(self, result: Mapping[str, Any]) -> Exception | None:
        """Return the error of one operation, or None; it shows no reason, which may hold data."""
        status, error = int(result["status"]), result.get("error")
        if error is None and (200 <= status < 300 or status == 404):
            return None  # 404: the document to delete is not there
        kind = error.get("type", "error") if isinstance(error, Mapping) else "error"
        if kind == "version_conflict_engine_exception":
            return None
        text = f"{self.sink.name} answered {status} ({kind})"
        # 403 is a block on the index, as when disks are full; 404 and 409 concern the index too.
        if status in LATER or status >= 500:
            return Refused(text, status=status)
        return PoisonChange(text)


def operation(index: str, delivery: Delivery) -> bytes:
    """Return the lines of a bulk request for a delivery.

    Raises:
        TypeError: the body is neither an object nor None.
        ValueError: the sequence is not a sequence number.
    """
    about = {
        "_index": index,
        "_id": delivery.id,
        "version": external_version(delivery.sequence),
        "version_type": "external_gte",
    }
    if delivery.body is None:
        return f"{to_text({'delete': about})}\n".encode()
    if not isinstance(delivery.body, Mapping | BaseModel):
        raise TypeError("a document must be an object")
    return f"{to_text({'index': about})}\n{to_text(delivery.body)}\n".encode()
