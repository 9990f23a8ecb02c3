"""OpenTelemetry: through its API alone, with the SDK's own memory as the witness."""

import re

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from streamkit.observe.meters import Meters
from streamkit.observe.metrics import METRICS, SECONDS
from streamkit.observe.otel import (
    OpenTelemetryMetrics,
    OpenTelemetryTracer,
    find_metrics,
    find_tracer,
)
from streamkit.observe.traces import ids_of, valid_parent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WRITER = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "4111-1111"


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield OpenTelemetryTracer(provider), exporter.get_finished_spans
    provider.shutdown()


def test_a_span_continues_the_writers_trace_and_is_current_within_the_run(spans):
    tracer, finished = spans
    with tracer.span("handle mail", parent=WRITER, attributes={"streamkit.handler": "mail"}) as own:
        assert get_current_span().get_span_context().span_id == ids_of(own)[1]
    assert not get_current_span().get_span_context().is_valid
    (span,) = finished()
    assert (span.name, span.kind) == ("handle mail", SpanKind.CONSUMER)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert span.attributes == {"streamkit.handler": "mail"}
    assert valid_parent(own) == own == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_a_span_without_a_parent_begins_a_trace_and_links_to_others(spans):
    tracer, finished = spans
    with (
        tracer.span("handle mail", parent=WRITER, attributes={}) as inner,
        tracer.span("commit", links=[inner], attributes={}) as own,
    ):
        pass
    commit, handled = finished()
    assert (commit.name, commit.parent) == ("commit", None)
    assert ids_of(own)[0] != handled.context.trace_id
    assert [link.context.span_id for link in commit.links] == [handled.context.span_id]


def test_an_error_is_told_by_its_class_and_never_by_what_it_says(spans):
    tracer, finished = spans
    with (
        pytest.raises(ValueError, match=SECRET),
        tracer.span("handle mail", parent=WRITER, attributes={}),
    ):
        raise ValueError(SECRET)
    (span,) = finished()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes == {"error.type": "ValueError"}
    assert SECRET not in span.to_json()


CONVENTION = re.compile(r"[a-z][a-z0-9]*(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+")
UNITS = ("seconds", "total", "bytes", "ratio")


def in_prometheus(name, kind, unit):
    """What Prometheus calls a metric that comes by OTLP: units in braces are left out."""
    suffix = {"s": "_seconds", "By": "_bytes"}.get(unit, "")
    return name.replace(".", "_") + suffix + ("_total" if kind == "counter" else "")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_names_follow_the_semantic_conventions_and_are_the_same_in_prometheus(metric):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    hook = OpenTelemetryMetrics(provider)
    made = getattr(hook, metric.kind)(metric.name, dict.fromkeys(metric.labels, "x"))
    (made.set if metric.kind == "gauge" else made.add if metric.kind == "counter" else made.record)(
        1
    )
    (resource,) = reader.get_metrics_data().resource_metrics
    (found,) = resource.scope_metrics[0].metrics
    provider.shutdown()
    assert CONVENTION.fullmatch(found.name)
    assert not found.name.endswith(UNITS), "neither unit nor total"
    assert found.unit in ("s", "By") or re.fullmatch(r"\{[a-z]*[^s]\}|\{loss\}", found.unit), (
        "one of them"
    )
    assert in_prometheus(found.name, metric.kind, found.unit) == metric.name


def test_every_metric_is_handed_on_with_its_numbers():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meters = Meters(OpenTelemetryMetrics(provider), "shop")
    meters.commits.add(2)
    meters.lag.set(1.5)
    meters.shards.set(float("nan"))
    meters.handler("mail").seconds.record(0.003)
    meters.throttles("GetRecords").add()
    (resource,) = reader.get_metrics_data().resource_metrics
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    provider.shutdown()
    assert "streamkit.shards" not in found, "it is not known"
    (commits,) = found["streamkit.commits"].data.data_points
    assert (commits.value, dict(commits.attributes)) == (2, {"consumer": "shop"})
    (lag,) = found["streamkit.lag"].data.data_points
    assert (lag.value, found["streamkit.lag"].unit) == (1.5, "s")
    (seconds,) = found["streamkit.handler"].data.data_points
    assert (seconds.count, tuple(seconds.explicit_bounds)) == (1, SECONDS)
    assert found["streamkit.throttles"].unit == "{call}"


def test_where_it_is_not_installed_nothing_is_found(monkeypatch):
    assert find_tracer() is not None
    assert find_metrics() is not None
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    assert find_tracer() is None
    assert find_metrics() is None


def test_without_an_sdk_spans_and_metrics_are_empty_and_harmless():
    with OpenTelemetryTracer().span("handle mail", attributes={}) as own:
        assert own == ""
    Meters(OpenTelemetryMetrics(), "shop").commits.add()
