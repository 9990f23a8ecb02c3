"""Tracing: continue a writer's trace through handlers, their effects, sinks and commits.

    writer ──traceparent──► handler's span ──► Send: with the delivery
                                │         └──► an item that a handler listens to: in its origin
                                └──link── commit's span, of many changes

In: a record. Its new image has the writer's `traceparent` in an attribute that the app names, or,
if a handler wrote it, in its origin. The value counts only if the write changed it: an update by
code that knows nothing of traces leaves the old value. Out: spans through a hook. Where no change
is traced, nothing is read and no span is made.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
from msgspec import Raw

from streamkit.core.outcome import Outcome, PendingChange
from streamkit.model.origin import WriteOrigin
from streamkit.observe.otel import find_tracer
from streamkit.observe.traces import Telemetry, Tracer, valid_parent
from streamkit.progress.commit import Batch
from streamkit.stream.decode import Record

_LINKS_MAX = 32
"""The most spans that a commit's span links to; a commit may hold a thousand changes."""

UNTRACED: AbstractContextManager[None] = nullcontext()
"""The context for code that is not traced."""


@dataclass(frozen=True)
class Tracing:
    """Traces for one consumer; does nothing without a tracer and an attribute."""

    tracer: Tracer | None = None
    attribute: str = ""
    consumer: str = ""
    _parse: Any = field(init=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Prepare to read the attribute from an image's bytes."""
        if self.is_on:
            image = msgspec.defstruct(
                "_Traced",
                [("trace", dict[str, Any] | None, None)],
                rename={"trace": self.attribute},
                gc=False,
            )
            object.__setattr__(self, "_parse", msgspec.json.Decoder(image).decode)

    @classmethod
    def of(cls, telemetry: Telemetry, consumer: str) -> "Tracing":
        """Return the tracing that an app asks for, with OpenTelemetry's tracer if it names none."""
        attribute = telemetry.trace_attribute or ""
        tracer = telemetry.tracer or (find_tracer() if attribute else None)
        return cls(tracer, attribute, consumer)

    @property
    def is_on(self) -> bool:
        """Return whether anything is traced."""
        return self.tracer is not None and bool(self.attribute)

    def read(self, record: Record, origin: WriteOrigin) -> str:
        """Return the `traceparent` of the writer of a change; empty if there is none."""
        if not self.is_on or origin.trace:
            return origin.trace if self.is_on else ""
        new, old = record.new_image, record.old_image
        text = "" if new is None else self._text(new)
        return valid_parent(text) if text and (old is None or text != self._text(old)) else ""

    def _text(self, image: Raw) -> str:
        if self.attribute.encode() not in bytes(image):
            return ""
        try:
            value = self._parse(image).trace
        except msgspec.MsgspecError:
            return ""
        text = None if value is None else value.get("S")
        return text if isinstance(text, str) else ""

    def run(self, change: PendingChange, outcome: Outcome) -> AbstractContextManager[None]:
        """Put a handler's run into a span, if its change is traced."""
        return self._run(change, outcome) if change.trace and self.tracer is not None else UNTRACED

    @contextmanager
    def _run(self, change: PendingChange, outcome: Outcome) -> Iterator[None]:
        assert self.tracer is not None  # noqa: S101 - looked at by the caller
        name = outcome.handler.name
        known = {
            "streamkit.consumer": self.consumer,
            "streamkit.handler": name,
            "streamkit.entity": outcome.handler.entity.__name__,
        }
        with self.tracer.span(f"handle {name}", parent=change.trace, attributes=known) as trace:
            outcome.trace = valid_parent(trace)
            yield

    def commit(
        self, shard: str, batch: Batch, pending: Iterable[PendingChange]
    ) -> AbstractContextManager[Any]:
        """Put a commit into a span that links to the runs whose effects it carries.

        Args:
            shard: the shard whose changes are committed.
            batch: the commit; it may hold only a part of the last change that it takes in.
            pending: the pending changes, in order, from the first one that the commit takes in.
        """
        if not self.is_on or self.tracer is None:
            return UNTRACED
        taken = islice(pending, batch.changes + bool(batch.cursor.done))
        traces = (outcome.trace for change in taken for outcome in change.outcomes)
        links = list(dict.fromkeys(trace for trace in traces if trace))
        if not links:
            return UNTRACED
        known = {"streamkit.consumer": self.consumer, "streamkit.shard": shard}
        return self.tracer.span("commit", links=links[:_LINKS_MAX], attributes=known)


NO_TRACING = Tracing()
"""A tracing that traces nothing."""
