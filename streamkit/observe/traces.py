"""Traces: a change continues the trace of its writer, by W3C Trace Context.

A `traceparent` is `00-TRACE-SPAN-FLAGS`, in lower-case hex digits; neither id is all zeros, and a
version above 00 may have more after the flags. Text of another form is not passed on.
Source: W3C Recommendation "Trace Context", section 3.2.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from streamkit.errors import DeclarationError
from streamkit.observe.metrics import Metrics
from streamkit.observe.shards import ShardHook, check_hook

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_LENGTH_MAX = 512


class Tracer(Protocol):
    """A hook for traces. It must not raise: an error would fail the handler or the commit."""

    def span(
        self,
        name: str,
        *,
        parent: str = "",
        links: Sequence[str] = (),
        attributes: Mapping[str, str],
    ) -> AbstractContextManager[str]:
        """Run something within a span.

        Args:
            name: the span's name, one of a few.
            parent: the valid `traceparent` that it follows; a new trace begins without one.
            links: the valid `traceparent`s of its other causes.
            attributes: names such as those of handlers and shards; never item data.

        Returns:
            A context manager that yields the span's own `traceparent`; empty if there is none. It
            records an exception that passes through it by its class alone.
        """


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The telemetry of an app beside `/metrics`.

    Args:
        metrics: a hook that also receives every metric.
        tracer: a hook for spans; by default OpenTelemetry's, if it is installed.
        trace_attribute: the attribute of the app's items in which writers store the `traceparent`
            of their span; without it nothing is traced.
        emf: whether functions on Lambda print a line of metrics, for CloudWatch, which bills them.
        on_shard: a hook that is called when a worker takes a shard, has drained it, releases or
            loses it. It is not awaited; its errors are logged and change nothing.

    Raises:
        DeclarationError: `on_shard` is a coroutine function, or `emf` is neither true nor false.
    """

    metrics: Metrics | None = None
    tracer: Tracer | None = None
    trace_attribute: str | None = None
    emf: bool = True
    on_shard: ShardHook | None = None

    def __post_init__(self) -> None:
        """Check the hook and `emf`."""
        check_hook(self.on_shard)
        if not isinstance(self.emf, bool):
            raise DeclarationError(f"Telemetry(emf={self.emf!r}): it is True or False")


def valid_parent(text: str) -> str:
    """Return a `traceparent` in the form of version 00; empty text if it is not valid."""
    if len(text) > _LENGTH_MAX:
        return ""
    match = _PARENT.fullmatch(text)
    if match is None:
        return ""
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not (trace.strip("0") and span.strip("0")):
        return ""
    return f"00-{trace}-{span}-{flags}"


def ids_of(parent: str) -> tuple[int, int, int]:
    """Split a valid `traceparent` into trace, span and flags."""
    _, trace, span, flags = parent.split("-")
    return int(trace, 16), int(span, 16), int(flags, 16)
