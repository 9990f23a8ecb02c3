"""Deliberate bugs in the one way in which an operation takes its steps."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "step-given-up-whose-reply-was-lost",
        "progress/operation.py",
        "            if await self.read() != after:\n                raise\n",
        "            raise\n",
        "a process takes its own step for another's, because the reply of its first try was lost",
        test="tests/unit/test_operation.py::test_a_step_whose_reply_was_lost_was_taken",
    ),
    Mutant(
        "refused-step-is-taken-for-mine",
        "progress/operation.py",
        "            if await self.read() != after:\n                raise\n",
        "            pass\n",
        "a process goes on with a step that was refused, because another one took another",
        test="tests/unit/test_operation.py::test_of_two_steps_from_one_state_the_second_is_refused_and_writes_nothing",
    ),
    Mutant(
        "refused-along-is-taken-for-written",
        "progress/operation.py",
        "        if sent is not None:\n            raise LeaseLost",
        "        if sent is not None and not sent.sources:\n            raise LeaseLost",
        "a step goes on although what it was to be written with was refused",
        test="tests/unit/test_operation.py::test_a_step_is_refused_if_a_condition_of_what_goes_along_does_not_hold",
    ),
    Mutant(
        "change-decided-once",
        "progress/operation.py",
        "            except LeaseLost:\n                before = await self.read()\n",
        "            except LeaseLost:\n                return before\n",
        "a command is lost in silence when another process steps at the same moment",
        test="tests/unit/test_operation.py::test_a_change_is_decided_again_about_what_others_have_written_meanwhile",
    ),
    Mutant(
        "trail-lost-by-a-roll-out",
        "fleet/generation.py",
        "        audit=newest.audit,\n",
        "",
        "a roll-out forgets who rebuilt, moved or rewound the consumer",
        test="tests/unit/test_status.py::test_a_trail_stays_when_a_worker_of_another_release_starts_a_generation",
    ),
    Mutant(
        "late-finish-of-a-rewind",
        "fleet/generation.py",
        "        if (now.number, now.incarnation) != (newest.number, newest.incarnation):\n",
        "        if now.incarnation != newest.incarnation:\n",
        "who finishes a rewind late says that the next one is finished, whose cursors are still there",
        test="tests/unit/fleet/test_gaps.py::test_a_rewind_that_is_finished_late_does_not_finish_the_one_after_it",
    ),
)
