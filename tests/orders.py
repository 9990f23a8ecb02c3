"""Orders, and a journal of what became of each: what tests of parked changes work on."""

from streamkit import Entity


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"
    text: str = ""


class Journal(Entity, pk="JOURNAL#{number}", sk="JOURNAL"):
    number: int
    lines: str = ""
    count: int = 0
