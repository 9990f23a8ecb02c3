"""Traces: where a change's trace comes from and how it goes on, as W3C Trace Context says.

A `traceparent` is `00-TRACE-SPAN-FLAGS`, in lower-case hex digits; neither id is all zeros, and a
version above 00 may have more behind the flags. What does not fit is no trace: it is not passed on.
Source: W3C Recommendation "Trace Context", section 3.2.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from streamkit.observe.metrics import Metrics
from streamkit.observe.shards import ShardHook, check_hook

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_LENGTH_MAX = 512


class Tracer(Protocol):
    """A hook for traces. It must not raise: an error is that of the handler, or of the commit."""

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
            name: says what goes on; there are few of them.
            parent: the valid `traceparent` that it follows; a new trace begins without one.
            links: the valid `traceparent`s of what it also comes from.
            attributes: names of streamkit's things; never item data.

        Returns:
            A context manager that yields the span's own `traceparent`; empty if there is none. An
            exception that passes through it is the span's, by its class alone.
        """


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What an app wants to be known of it beside `/metrics`.

    Args:
        metrics: a hook that is told every metric, too.
        tracer: a hook for spans; without it OpenTelemetry's, if it is installed.
        trace_attribute: the attribute of the app's items in which writers leave the `traceparent`
            of their span; without it nothing is traced.
        emf: whether functions on Lambda print a line of metrics, for CloudWatch, which bills them.
        on_shard: a hook that is called when a worker takes a shard, has drained it, releases or
            loses it; not awaited, and its errors are logged and change nothing.

    Raises:
        DeclarationError: `on_shard` is a coroutine function.
    """

    metrics: Metrics | None = None
    tracer: Tracer | None = None
    trace_attribute: str | None = None
    emf: bool = True
    on_shard: ShardHook | None = None

    def __post_init__(self) -> None:
        """Check the hook."""
        check_hook(self.on_shard)


def valid_parent(text: str) -> str:
    """Return a `traceparent` as version 00 has it; empty if it is none."""
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
