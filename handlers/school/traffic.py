"""The school's office, and what must follow from what it does.

An enrolment gets the names that were read a moment before, or none: either parent may have been
renamed by then, or be gone.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from handlers.school.entities import Enrolment, Sport, Student
from handlers.school.handlers import SportsOfStudent, StudentsOfSport
from streamkit import Key, Put, Set, absent, present
from streamkit.testing import Comparison, Final, Writer

Act = Callable[[Writer], Awaitable[None]]


class Traffic:
    """Students and sports.

    Args:
        students: how many there are at first.
        sports: how many there are, given up or not.
    """

    def __init__(self, *, students: int = 30, sports: int = 6) -> None:
        self._students = [f"{number:03d}" for number in range(students)]
        self._sports = [f"sport{number}" for number in range(sports)]
        self._names = 0

    async def open(self, writer: Writer) -> None:
        """Write students and sports, and enrol every student for one sport."""
        await writer.put(*(self._sport(sport, writer.rng) for sport in self._sports))
        for student_id in self._students:
            await writer.put(Student(student_id=student_id, name=self._name("student")))
            sport = writer.rng.choice(self._sports)
            await writer.put(Enrolment(student_id=student_id, sport=sport))

    async def act(self, writer: Writer) -> None:
        """Let the office do something."""
        acts: dict[Act, float] = {
            self._enrol: 30,
            self._withdraw: 10,
            self._rename_student: 16,
            self._rename_sport: 10,
            self._change_coach: 4,
            self._next_year: 6,
            self._join: 4,
            self._leave: 3,
            self._give_up_or_take_up: 2,
        }
        (act,) = writer.rng.choices(list(acts), list(acts.values()))
        await act(writer)

    # -- enrolments ----------------------------------------------------------------------------

    async def _enrol(self, writer: Writer) -> None:
        enrolment = Enrolment(
            student_id=writer.rng.choice(self._students), sport=writer.rng.choice(self._sports)
        )
        if writer.rng.random() < 0.7:
            student = await writer.table.get(Student.key(student_id=enrolment.student_id))
            sport = await writer.table.get(Sport.key(sport=enrolment.sport))
            names = {
                "student_name": student.name if student else "",
                "sport_name": sport.name if sport else "",
            }
            enrolment = enrolment.model_copy(update=names)
        await writer.put(enrolment)

    async def _withdraw(self, writer: Writer) -> None:
        student_id, sport = writer.rng.choice(self._students), writer.rng.choice(self._sports)
        await writer.delete(Enrolment.key(student_id=student_id, sport=sport))

    # -- students and sports -------------------------------------------------------------------

    async def _rename_student(self, writer: Writer) -> None:
        await self._set(writer, self._one_student(writer.rng), name=self._name("student"))

    async def _next_year(self, writer: Writer) -> None:
        await self._set(writer, self._one_student(writer.rng), year=writer.rng.randrange(1, 9))

    async def _rename_sport(self, writer: Writer) -> None:
        await self._set(writer, self._one_sport(writer.rng), name=self._name("sport"))

    async def _change_coach(self, writer: Writer) -> None:
        await self._set(writer, self._one_sport(writer.rng), coach=_coach(writer.rng))

    async def _join(self, writer: Writer) -> None:
        student_id = f"{len(self._students) + self._names:03d}n"
        await writer.put(Student(student_id=student_id, name=self._name("student")))
        self._students.append(student_id)

    async def _leave(self, writer: Writer) -> None:
        """Delete a student, who may still be enrolled meanwhile, and may come back."""
        student = self._one_student(writer.rng)
        if writer.rng.random() < 0.8:
            await writer.delete(student)
        else:
            returned = Student(
                student_id=dict(student.fields)["student_id"], name=self._name("again")
            )
            await writer.write(Put(returned).only_if(absent))

    async def _give_up_or_take_up(self, writer: Writer) -> None:
        sport = self._sport(writer.rng.choice(self._sports), writer.rng)
        if not await writer.write(Put(sport).only_if(absent)):
            await writer.delete(sport.item_key)

    async def _set(self, writer: Writer, key: Key[Student] | Key[Sport], **fields: object) -> None:
        await writer.write(Set(key, **fields).only_if(present))

    def _one_student(self, rng: random.Random) -> Key[Student]:
        return Student.key(student_id=rng.choice(self._students))

    def _one_sport(self, rng: random.Random) -> Key[Sport]:
        return Sport.key(sport=rng.choice(self._sports))

    def _sport(self, sport: str, rng: random.Random) -> Sport:
        return Sport(sport=sport, name=self._name("sport"), coach=_coach(rng))

    def _name(self, kind: str) -> str:
        """Return a name that was never used before."""
        self._names += 1
        return f"{kind} {self._names}"

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        students = {student.student_id: student.name for student in final[Student]}
        sports = {sport.sport: sport.name for sport in final[Sport]}
        enrolments = final[Enrolment]
        wanted = [
            enrolment.model_copy(
                update={
                    "student_name": students[enrolment.student_id],
                    "sport_name": sports.get(enrolment.sport, enrolment.sport_name),
                }
            )
            for enrolment in enrolments
            if enrolment.student_id in students
        ]
        yield final.compare(Enrolment, wanted)
        counts = Counter(enrolment.sport for enrolment in wanted).items()
        yield final.compare(
            StudentsOfSport, [StudentsOfSport(sport=s, students=n) for s, n in counts]
        )
        counts = Counter(enrolment.student_id for enrolment in wanted).items()
        yield final.compare(
            SportsOfStudent, [SportsOfStudent(student_id=s, sports=n) for s, n in counts]
        )
        # A student who does nothing has no count, not one of 0.
        left = {one.student_id: one.sports for one in final[SportsOfStudent]}
        yield Comparison.of("counts that are left", left, dict(counts))


def _coach(rng: random.Random) -> str:
    return f"coach {rng.randrange(20)}"
