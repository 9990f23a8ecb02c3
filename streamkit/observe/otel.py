"""OpenTelemetry: metrics and traces through its API alone; needs the extra `opentelemetry`.

The SDK that the program sets up, as `opentelemetry-instrument` does, exports them. Without an SDK
the API's own instruments do nothing.

Names follow OpenTelemetry's semantic conventions: dots for namespaces, and neither `_total` nor a
unit in a name. Prometheus' own rules for OTLP add both again, so that the names there are always
those of `METRICS`; the rules and dashboards of `deploy/` fit both ways.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamkit.observe.metrics import METRICS, SECONDS, Counter, Gauge, Histogram, is_known
from streamkit.observe.traces import Tracer, ids_of

if TYPE_CHECKING:
    from opentelemetry import metrics as otel_metrics
    from opentelemetry import trace as otel_trace

_SCOPE = "streamkit"


class _Counter:
    def __init__(self, inner: "otel_metrics.Counter", labels: Mapping[str, str]) -> None:
        self._add, self._labels = inner.add, dict(labels)

    def add(self, amount: float = 1.0, /) -> None:
        self._add(amount, self._labels)


class _Gauge:
    def __init__(self, inner: "otel_metrics._Gauge", labels: Mapping[str, str]) -> None:
        self._set, self._labels = inner.set, dict(labels)

    def set(self, value: float, /) -> None:
        if is_known(value):
            self._set(value, self._labels)


class _Histogram:
    def __init__(self, inner: "otel_metrics.Histogram", labels: Mapping[str, str]) -> None:
        self._record, self._labels = inner.record, dict(labels)

    def record(self, value: float, /) -> None:
        self._record(value, self._labels)


class OpenTelemetryMetrics:
    """A hook that passes every metric on, under the name of `otel_name`.

    Args:
        provider: the meter provider; by default the one that the program has set.
    """

    def __init__(self, provider: "otel_metrics.MeterProvider | None" = None) -> None:
        from opentelemetry import metrics

        self._meter = (provider or metrics.get_meter_provider()).get_meter(_SCOPE)
        self._counters: dict[str, otel_metrics.Counter] = {}
        self._gauges: dict[str, otel_metrics._Gauge] = {}
        self._histograms: dict[str, otel_metrics.Histogram] = {}

    def counter(self, name: str, labels: Mapping[str, str], /) -> Counter:
        """Return the counter with these labels."""
        if name not in self._counters:
            self._counters[name] = self._meter.create_counter(otel_name(name), *_said_of(name))
        return _Counter(self._counters[name], labels)

    def gauge(self, name: str, labels: Mapping[str, str], /) -> Gauge:
        """Return the gauge with these labels."""
        if name not in self._gauges:
            self._gauges[name] = self._meter.create_gauge(otel_name(name), *_said_of(name))
        return _Gauge(self._gauges[name], labels)

    def histogram(self, name: str, labels: Mapping[str, str], /) -> Histogram:
        """Return the histogram with these labels."""
        if name not in self._histograms:
            self._histograms[name] = self._meter.create_histogram(
                otel_name(name), *_said_of(name), explicit_bucket_boundaries_advisory=SECONDS
            )
        return _Histogram(self._histograms[name], labels)


def otel_name(name: str) -> str:
    """Return the name of a metric in OpenTelemetry: `streamkit.lag` for `streamkit_lag_seconds`."""
    for suffix in ("_total", "_seconds", "_bytes"):
        name = name.removesuffix(suffix)
    return name.replace("_", ".", 1)


_UNITS = {"seconds": "s", "bytes": "By"}
_ONE = {"losses": "loss"}
"""Singular forms that are not the plural without its last letter."""


def _said_of(name: str) -> tuple[str, str]:
    metric = METRICS[name]
    one = _ONE.get(metric.unit, metric.unit.removesuffix("s"))
    return _UNITS.get(metric.unit, f"{{{one}}}"), metric.text


class OpenTelemetryTracer:
    """A hook that makes OpenTelemetry spans; inside its block, a span is the current span.

    Args:
        provider: the tracer provider; by default the one that the program has set.
    """

    def __init__(self, provider: "otel_trace.TracerProvider | None" = None) -> None:
        from opentelemetry import trace

        self._tracer = (provider or trace.get_tracer_provider()).get_tracer(_SCOPE)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: str = "",
        links: Sequence[str] = (),
        attributes: Mapping[str, str],
    ) -> Iterator[str]:
        """Run something within a span; see `Tracer`."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        # The context is empty: otherwise a span that happens to be current would be the parent.
        above = Context()
        if parent:
            above = trace.set_span_in_context(trace.NonRecordingSpan(_context_of(parent)), above)
        span = self._tracer.start_span(
            name,
            context=above,
            kind=trace.SpanKind.CONSUMER if parent else trace.SpanKind.INTERNAL,
            attributes=dict(attributes),
            links=[trace.Link(_context_of(link)) for link in links],
        )
        try:
            # An exception's text may hold item data, so OpenTelemetry must not record it.
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield _parent_of(span)
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
        finally:
            span.end()


def _context_of(parent: str) -> "otel_trace.SpanContext":
    from opentelemetry import trace

    trace_id, span_id, flags = ids_of(parent)
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))


def _parent_of(span: "otel_trace.Span") -> str:
    known = span.get_span_context()
    if not known.is_valid:
        return ""
    return f"00-{known.trace_id:032x}-{known.span_id:016x}-{known.trace_flags & 0xFF:02x}"


def find_tracer() -> Tracer | None:
    """Return OpenTelemetry's tracer, or None where it is not installed."""
    try:
        return OpenTelemetryTracer()
    except ImportError:
        return None


def find_metrics() -> OpenTelemetryMetrics | None:
    """Return OpenTelemetry's metrics, or None where it is not installed."""
    try:
        return OpenTelemetryMetrics()
    except ImportError:
        return None
