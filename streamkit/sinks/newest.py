"""Remember the newest sequence of each id that one open sink delivered lately. Pure.

Some receivers cannot tell all sequences apart. With this memory, what one worker sends stays in
order nevertheless, also when handlers or parked changes overtake each other.
"""

from streamkit.sinks.sink import Delivery

IDS_MAX = 50_000
"""This many take some 10 MB. The id that was delivered longest ago is forgotten first."""


class Newest:
    """Remember the newest sequence of up to `ids_max` ids."""

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._sequences: dict[str, str] = {}

    def outdates(self, delivery: Delivery) -> bool:
        """Return True if a newer delivery of the same id was made already."""
        return self._sequences.get(delivery.id, "") > delivery.sequence

    def note(self, delivery: Delivery) -> None:
        """Remember that a delivery was made."""
        sequence = max(self._sequences.pop(delivery.id, ""), delivery.sequence)
        self._sequences[delivery.id] = sequence
        if len(self._sequences) > self._ids_max:
            del self._sequences[next(iter(self._sequences))]
