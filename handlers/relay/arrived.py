"""Arrived: what has come out of the sinks, in one form for recorders and for real places."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.sinks.body import to_plain
from streamkit.testing.recording import Recorder


@dataclass(frozen=True)
class Arrival:
    """One thing that arrived, in JSON's types; `body` is None for a deletion."""

    key: str
    id: str
    sequence: str
    body: Any


@dataclass(frozen=True)
class Arrived:
    """Everything that arrived.

    Attributes:
        arrivals: by the name of the sink, in order; things may have arrived more than once.
        kept: what a place that keeps things has in the end, by the name of the sink and by id.
    """

    arrivals: Mapping[str, Sequence[Arrival]]
    kept: Mapping[str, Mapping[str, Any]]

    def once(self, sink: str) -> list[Arrival]:
        """Return what arrived, each thing once, where it came first."""
        found: dict[str, Arrival] = {}
        for arrival in self.arrivals.get(sink, ()):
            found.setdefault(arrival.key, arrival)
        return list(found.values())


def recorded(sent: Mapping[str, Recorder], keeping: Sequence[str]) -> Arrived:
    """Read recorders; those of the sinks that keep things have kept the latest of each id."""
    arrivals = {name: list(_arrivals(recorder)) for name, recorder in sent.items()}
    kept = {name: latest(arrivals[name]) for name in keeping}
    return Arrived(arrivals, kept)


def latest(arrivals: Sequence[Arrival]) -> dict[str, Any]:
    """Return the latest body of each id, without those that were deleted."""
    in_order = sorted(arrivals, key=lambda arrival: arrival.sequence)
    bodies = {arrival.id: arrival.body for arrival in in_order}
    return {name: body for name, body in bodies.items() if body is not None}


def _arrivals(recorder: Recorder) -> Iterator[Arrival]:
    for delivery in recorder.deliveries:
        body = to_plain(delivery.body)
        yield Arrival(delivery.key, delivery.id, delivery.sequence, body)
