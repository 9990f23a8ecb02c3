"""Exposition: a registry becomes the text that Prometheus reads (its format 0.0.4). Pure."""

import math
from collections.abc import Iterable, Iterator

from streamkit.observe.metrics import SECONDS, Metric
from streamkit.observe.registry import Labels, Number, Registry, Spread

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(registry: Registry) -> str:
    """Return the text of every series that has a value."""
    lines: list[str] = []
    for metric, series in registry.series():
        lines.append(f"# HELP {metric.name} {_help(metric.text)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, one in series.items():
            lines += _lines(metric, labels, one)
    return "".join(f"{line}\n" for line in lines)


def _lines(metric: Metric, labels: Labels, one: Number | Spread) -> Iterator[str]:
    pairs = list(zip(metric.labels, labels, strict=True))
    if isinstance(one, Number):
        yield f"{metric.name}{_braces(pairs)} {_number(one.value)}"
        return
    below = 0
    for bound, count in zip((*SECONDS, math.inf), one.counts, strict=True):
        below += count
        yield f"{metric.name}_bucket{_braces([*pairs, ('le', _number(bound))])} {below}"
    yield f"{metric.name}_sum{_braces(pairs)} {_number(one.total)}"
    yield f"{metric.name}_count{_braces(pairs)} {below}"


def _braces(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{_label(value)}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
