"""The newest sequence of each id that was delivered lately, by one open sink. Pure.

For receivers that cannot tell any two sequences apart: what one worker sends is then in order all
the same, also when handlers or parked changes overtake each other.
"""

from streamkit.sinks.sink import Delivery

IDS_MAX = 50_000
"""Some 10 MB; whoever has not been delivered for as many others is forgotten."""


class Newest:
    """Remembers up to `ids_max` ids."""

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._sequences: dict[str, str] = {}

    def outdates(self, delivery: Delivery) -> bool:
        """Say whether a newer delivery of the same id was made."""
        return self._sequences.get(delivery.id, "") > delivery.sequence

    def note(self, delivery: Delivery) -> None:
        """Remember that a delivery was made."""
        sequence = max(self._sequences.pop(delivery.id, ""), delivery.sequence)
        self._sequences[delivery.id] = sequence
        if len(self._sequences) > self._ids_max:
            del self._sequences[next(iter(self._sequences))]
