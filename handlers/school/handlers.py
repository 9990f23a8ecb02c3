"""What follows from what in the school: names from two parents, and counts on both sides."""

from typing import Annotated

from handlers.school.entities import Enrolment, Sport, Student
from streamkit import Aggregate, App, Count, Key, Query, Set, TableShape, changed

app = App("school", table="School")

SHAPE = TableShape()
"""All of it follows from the entities."""


# -- copies ------------------------------------------------------------------------------------


def enrolments_of_student(student: Student) -> Query[Enrolment]:
    """Return what a student is enrolled for: they are in the student's own collection."""
    return Enrolment.query(student_id=student.student_id)


def student_of(enrolment: Enrolment) -> Key[Student]:
    """Return the key of the student who is enrolled."""
    return Student.key(student_id=enrolment.student_id)


@app.mirror(copies=enrolments_of_student, source=student_of, when=changed("name"), gone="delete")
def copy_student_name(student: Student, enrolment: Enrolment) -> Set[Enrolment]:
    """Keep the student's name on every enrolment; when the student leaves, these are deleted."""
    return Set(enrolment.item_key, student_name=student.name)


def enrolments_of_sport(sport: Sport) -> Query[Enrolment]:
    """Return the enrolments for a sport; from the index, which trails the table."""
    return Enrolment.query(index=Enrolment.by_sport, sport=sport.sport)


def sport_of(enrolment: Enrolment) -> Key[Sport]:
    """Return the key of the sport of an enrolment."""
    return Sport.key(sport=enrolment.sport)


@app.mirror(copies=enrolments_of_sport, source=sport_of, when=changed("name"))
def copy_sport_name(sport: Sport, enrolment: Enrolment) -> Set[Enrolment]:
    """Keep the sport's name on every enrolment; the name of a sport that is given up stays."""
    return Set(enrolment.item_key, sport_name=sport.name)


# -- counts ------------------------------------------------------------------------------------


@app.aggregate
class StudentsOfSport(Aggregate[Enrolment], pk="STUDENTS#{sport}", sk="STUDENTS#{sport}"):
    """How many students do a sport."""

    sport: str
    students: Annotated[int, Count()] = 0


@app.aggregate
class SportsOfStudent(
    Aggregate[Enrolment], pk="SPORTS#{student_id}", sk="SPORTS#{student_id}", remove_empty=True
):
    """How many sports a student does. A student who has left leaves no count of 0."""

    student_id: str
    sports: Annotated[int, Count()] = 0
