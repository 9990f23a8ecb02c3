"""The school, under traffic and trouble, and one statement of its README at a time."""

from collections.abc import Callable

import pytest

from handlers.school.entities import Enrolment, Sport, Student
from handlers.school.handlers import SHAPE, SportsOfStudent, StudentsOfSport, app
from handlers.school.traffic import Traffic
from streamkit.kinds.preflight import findings
from streamkit.testing import Harness, trial
from tests.seeds import seeds

MANY = 52
"""More copies than are mended in the commit of the change itself."""


@pytest.fixture
def school(harness_of: Callable[..., Harness]) -> Harness:
    school = harness_of(app, shape=SHAPE)
    school.put(tennis("Tennis"), Student(student_id="1", name="Ann"))
    return school


def tennis(name: str) -> Sport:
    return Sport(sport="tennis", name=name, coach="Lee")


def enrolled(number: int = 1, **fields: str) -> Enrolment:
    return Enrolment(student_id=str(number), sport="tennis", **fields)


def names(school: Harness) -> set[tuple[str, str]]:
    return {(one.student_name, one.sport_name) for one in school.scan(Enrolment)}


@pytest.mark.parametrize("seed", seeds(3))
def test_the_school_is_what_its_history_says(seed: int) -> None:
    ran = trial(app, Traffic(students=12), shape=SHAPE, seed=seed, acts=80)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_the_app_fits_its_table_without_a_finding(school: Harness) -> None:
    assert findings(app, school.tables) == []


# -- names -------------------------------------------------------------------------------------


def test_each_parent_that_is_renamed_changes_its_own_part_of_an_enrolment(school: Harness) -> None:
    school.put(enrolled())
    school.settle()
    assert names(school) == {("Ann", "Tennis")}
    school.put(tennis("Lawn tennis"))
    school.settle()
    assert names(school) == {("Ann", "Lawn tennis")}
    school.put(Student(student_id="1", name="Anna"))
    school.settle()
    assert names(school) == {("Anna", "Lawn tennis")}


def test_both_parents_renamed_at_once_leave_no_old_name(school: Harness) -> None:
    school.put(enrolled())
    for number in range(5):
        school.put(tennis(f"Tennis {number}"), Student(student_id="1", name=f"Ann {number}"))
        school.advance(0.2)
    school.settle()
    assert names(school) == {("Ann 4", "Tennis 4")}


def test_enrolments_made_while_a_sport_is_renamed_have_the_new_name(school: Harness) -> None:
    for number in range(MANY):
        school.put(Student(student_id=str(number), name=f"student {number}"), enrolled(number))
    school.settle()
    school.put(tennis("Lawn tennis"))
    school.advance(0.3)
    school.put(*(enrolled(number, sport_name="Tennis") for number in range(0, MANY, 10)))
    school.crash()
    school.settle()
    assert {sport for _, sport in names(school)} == {"Lawn tennis"}
    assert len(names(school)) == MANY


def test_enrolments_made_while_a_student_is_renamed_have_the_new_name(school: Harness) -> None:
    school.put(*(Enrolment(student_id="1", sport=f"sport {number}") for number in range(MANY)))
    school.settle()
    school.put(Student(student_id="1", name="Anna"))
    school.advance(0.3)
    school.put(*(Enrolment(student_id="1", sport=f"new {n}", student_name="Ann") for n in range(5)))
    school.crash()
    school.settle()
    assert len(school.scan(Enrolment)) == MANY + 5
    assert names(school) == {("Anna", "")}


def test_a_sport_that_is_given_up_leaves_its_name_and_brings_a_new_one(school: Harness) -> None:
    school.put(enrolled())
    school.settle()
    school.delete(Sport.key(sport="tennis"))
    school.settle()
    assert names(school) == {("Ann", "Tennis")}
    school.put(tennis("Lawn tennis"))
    school.settle()
    assert names(school) == {("Ann", "Lawn tennis")}


# -- who leaves, and counts --------------------------------------------------------------------


def test_a_student_who_leaves_takes_all_enrolments_along(school: Harness) -> None:
    for number in range(MANY):
        school.put(Enrolment(student_id="1", sport=f"sport {number}"))
    school.put(Student(student_id="2", name="Bob"), enrolled(2), enrolled(1))
    school.settle()
    school.delete(Student.key(student_id="1"))
    school.settle()
    assert [one.student_id for one in school.scan(Enrolment)] == ["2"]
    assert [(one.student_id, one.sports) for one in school.scan(SportsOfStudent)] == [("2", 1)]
    count = school.get(StudentsOfSport.key(sport="tennis"))
    assert count is not None
    assert count.students == 1


def test_who_is_enrolled_after_leaving_is_not(school: Harness) -> None:
    school.put(enrolled(99, student_name="Zoe"))
    school.settle()
    assert school.scan(Enrolment) == []
    assert not school.parked()


def test_both_sides_are_read_and_counted(school: Harness) -> None:
    school.put(Student(student_id="2", name="Bob"), enrolled(1), enrolled(2))
    school.put(Enrolment(student_id="2", sport="chess"))
    school.settle()
    of_student = school.query(Enrolment.query(student_id="2"))
    assert [enrolment.sport for enrolment in of_student] == ["chess", "tennis"]
    of_sport = school.query(Enrolment.query(index=Enrolment.by_sport, sport="tennis"))
    assert [enrolment.student_name for enrolment in of_sport] == ["Ann", "Bob"]
    counted = {one.sport: one.students for one in school.scan(StudentsOfSport)}
    assert counted == {"tennis": 2, "chess": 1}
    assert {one.student_id: one.sports for one in school.scan(SportsOfStudent)} == {"1": 1, "2": 2}
