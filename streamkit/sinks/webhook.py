"""A sink that calls webhooks: one POST for each delivery, or one for many.

In: deliveries. Out: requests. A status of 2xx means delivered. After 408, 409, 423, 425, 429, 5xx
or no answer at all it is tried again; also after 3xx, 401, 403, 404, 405, 407, 410 and 421, which
say that the receiver takes no delivery at all for now. Every other status means never:
`PoisonChange`.

Headers of each request:

* `Idempotency-Key`: the delivery's key; the same when it comes again.
* `X-Streamkit-Sequence`: orders the deliveries of one `X-Streamkit-Group`, which is an item; 40
  digits, to be compared as text. A sequence that is not above the last one is old.
* `X-Streamkit-Id`: what the delivery is about; percent-encoded where it is not plain ASCII.
* `X-Streamkit-Deleted: true` with a body of `null`, for a deletion.
* `traceparent`: of the handler's run, if its change was traced (W3C Trace Context).
* `X-Streamkit-Attributes`: the attributes, if there are any, as JSON in ASCII.
* `X-Streamkit-Signature`, if there is a secret: `t=SECONDS,v1=HEX`, the HMAC-SHA256 of the text of
  the seconds since 1970, a dot and the body. Receivers compute it again, compare it in constant
  time, and refuse what is older than a few minutes.

With `batch=True` the body is a list of envelopes (see `envelope`). The `Idempotency-Key` then
stands for this list, and the same delivery may come again in another list. When a list is refused
for good, its members are sent one by one, each in a list of its own, so that only those at fault
are parked.
"""

import hashlib
import hmac
import json
import math
import string
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar
from urllib.parse import quote

from streamkit.errors import DeclarationError, PoisonChange
from streamkit.sinks.body import to_text
from streamkit.sinks.endpoint import Answer, Endpoint, HttpSink, Refused, fate
from streamkit.sinks.envelope import to_envelope
from streamkit.sinks.sink import Delivery, Limits

_ANSWER_BYTES = 64_000
"""An answer is read so that its connection can be used again. A longer answer closes it."""

_PLAIN = string.punctuation.replace("%", "")


@dataclass(frozen=True)
class Webhook(HttpSink):
    """Post to a webhook; needs the extra `webhook`.

    Args:
        name: the name of the sink.
        url: the address to post to.
        secret: signs each request; without it there is no signature.
        headers: sent along, such as `Authorization`; they may replace `Content-Type`.
        auth: authentication for httpx, such as a pair of user and password.
        timeout: seconds for a whole call.
        batch: post lists of up to `items` deliveries.
        items: how many deliveries a list has at most.
        calls: how many requests may be under way at once.
        pause_max: the longest pause in seconds that is granted when the receiver asks for one
            (`Retry-After`).
        transport: transport for httpx, for proxies or client certificates.
        clock: the time in signatures.

    Raises:
        DeclarationError: the URL is not one of HTTP, or a header's value is none.
    """

    _: KW_ONLY
    secret: str | None = field(default=None, repr=False)
    batch: bool = False
    items: int = 100

    extra: ClassVar[str] = "webhook"

    def __post_init__(self) -> None:
        """Check the address, the headers and `batch`."""
        super().__post_init__()
        if not isinstance(self.batch, bool):
            raise DeclarationError(f"sink {self.name!r}: batch={self.batch!r}: it is True or False")

    @property
    def limits(self) -> Limits:
        """Return what one call takes."""
        # No time limit here: each request has its own, and may wait for a pause asked for.
        return Limits(self.items if self.batch else 1, calls=self.calls, seconds=math.inf)

    def sender(self, endpoint: Endpoint) -> "WebhookSender":
        """Return the sender that posts."""
        return WebhookSender(self, endpoint)


@dataclass(frozen=True)
class WebhookSender:
    """An open webhook."""

    sink: Webhook
    endpoint: Endpoint

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Post, in order; once a delivery has failed, post no more of its group."""
        if self.sink.batch and len(deliveries) > 1:
            error = await self._attempt(deliveries)
            if not isinstance(error, PoisonChange):
                return [error] * len(deliveries)
        errors: list[Exception | None] = []
        failed: dict[str, Exception] = {}
        refused: Exception | None = None
        for delivery in deliveries:
            if refused is None and delivery.group not in failed:
                error = await self._attempt([delivery])
                if error is not None:
                    failed[delivery.group] = error
                if isinstance(error, Refused) and error.away:
                    refused = error
            else:
                error = refused or Refused("waits for an earlier delivery of its item")
            errors.append(error)
        return errors

    async def _attempt(self, deliveries: Sequence[Delivery]) -> Exception | None:
        try:
            body, headers = self._request(deliveries)
        except (TypeError, ValueError) as error:
            return PoisonChange(f"{self.sink.name}: not JSON ({type(error).__name__})")
        try:
            return fate(self.sink.name, await self._post(body, {**headers, **self.sink.headers}))
        except Refused as error:
            return error
        except (TypeError, ValueError) as error:  # of headers or `auth`, not of the delivery
            text = f"{self.sink.name}: no request can be made of its headers"
            return Refused(f"{text} ({type(error).__name__})", away=True)

    def _request(self, deliveries: Sequence[Delivery]) -> tuple[bytes, dict[str, str]]:
        if not self.sink.batch:
            return to_text(deliveries[0].body).encode(), _headers(deliveries[0])
        body = to_text([to_envelope(delivery) for delivery in deliveries]).encode()
        return body, {"Content-Type": "application/json", "Idempotency-Key": _key(deliveries)}

    async def _post(self, body: bytes, headers: dict[str, str]) -> Answer:
        if self.sink.secret is not None:
            seconds = int(self.sink.clock.time())
            headers["X-Streamkit-Signature"] = signature(self.sink.secret, seconds, body)
        return await self.endpoint.post(self.sink.url, body, headers, keep=_ANSWER_BYTES)


def signature(secret: str, seconds: int, body: bytes) -> str:
    """Return the value of `X-Streamkit-Signature` for a body sent at this time."""
    signed = f"{seconds}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _headers(delivery: Delivery) -> dict[str, str]:
    text = isinstance(delivery.body, str)
    headers = {
        "Content-Type": "text/plain; charset=utf-8" if text else "application/json",
        "Idempotency-Key": delivery.key,
        "X-Streamkit-Id": quote(delivery.id, safe=_PLAIN),
        "X-Streamkit-Group": delivery.group,
        "X-Streamkit-Sequence": delivery.sequence,
    }
    if delivery.body is None:
        headers["X-Streamkit-Deleted"] = "true"
    if delivery.traceparent:
        headers["traceparent"] = delivery.traceparent
    if delivery.attributes:
        headers["X-Streamkit-Attributes"] = json.dumps(dict(delivery.attributes))
    return headers


def _key(deliveries: Sequence[Delivery]) -> str:
    joined = "".join(delivery.key for delivery in deliveries)
    return hashlib.blake2b(joined.encode(), digest_size=16).hexdigest()
