"""The entities of the school: what the items of its table look like.

Only the handlers write the two names on an enrolment; the counts stand beside their handlers.
"""

from typing import ClassVar

from streamkit import Entity, Index


class Student(Entity, pk="STUDENT#{student_id}", sk="STUDENT#{student_id}"):
    """A student."""

    student_id: str
    name: str
    year: int = 1


class Sport(Entity, pk="SPORT#{sport}", sk="SPORT#{sport}"):
    """A sport. `sport` is what its key is made of, and stays; `name` is what it is called."""

    sport: str
    name: str
    coach: str


class Enrolment(Entity, pk="STUDENT#{student_id}", sk="SPORT#{sport}"):
    """A student does a sport.

    The index has the table's own two keys turned round, and needs no attributes for that.
    """

    student_id: str
    sport: str
    student_name: str = ""
    sport_name: str = ""

    by_sport: ClassVar = Index(
        "Turned",
        pk="SPORT#{sport}",
        sk="STUDENT#{student_id}",
        pk_attribute="SK",
        sk_attribute="PK",
    )
