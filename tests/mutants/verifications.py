"""Deliberate bugs in verifications of migrations that several processes share."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "verification-never-joined",
        "migrate/verifying.py",
        "least = seen.number + (again or not seen.is_under_way)",
        "least = seen.number + 1",
        "a process gives up what others have read, and begins at the first page",
        test="tests/simulation/test_shared_verification.py::test_the_next_process_reads_only_what_the_killed_one_has_left",
    ),
    Mutant(
        "verification-of-another-phase-joined",
        "migrate/verifying.py",
        " or now.course != self.work.state.course):",
        "):",
        "what was read before the switch counts as read after it",
        test="tests/simulation/test_shared_verification.py::test_what_was_right_in_an_earlier_phase_is_read_again_in_the_next_one",
    ),
    Mutant(
        "verification-outlives-its-phase",
        "migrate/verifying.py",
        "        return state.course != self.work.state.course\n",
        "        return state.id != self.work.state.id\n",
        "items are held against a phase that is over, and the report says that all is right",
        test="tests/simulation/test_shared_verification.py::test_a_phase_that_ends_while_items_are_verified_is_verified_anew",
    ),
    Mutant(
        "repair-joined-without-it",
        "migrate/verifying.py",
        '*(("repair",) if repair else ())',
        "*(() if repair else ())",
        "a process that only looks continues a repair, and repairs",
        test="tests/simulation/test_shared_verification.py::test_a_verification_without_repair_does_not_continue_one_with_it",
    ),
    Mutant(
        "sums-of-the-last-page-alone",
        "migrate/verification_book.py",
        "    before.balance.add(page.balance)\n",
        "    before = replace(before, balance=page.balance)\n",
        "of a segment only the copies of its last page are balanced with their sources",
        test="tests/simulation/test_shared_verification.py::test_a_long_report_is_read_as_it_was_written_and_deleted_with_the_next",
    ),
    Mutant(
        "verification-segments-unfenced",
        "migrate/verification_book.py",
        "            fence=self._fence(now),\n",
        "",
        "a process that stood still makes the segments of a verification again that is over",
        test="tests/simulation/test_shared_verification.py::test_a_verification_that_stood_still_at_any_call_leaves_nothing_and_repairs_nothing_late",
    ),
    Mutant(
        "verification-left-behind",
        "migrate/verifying.py",
        "            await self.book.clear(now)\n",
        "",
        "every verification leaves its segments, and all that they have found",
        test="tests/simulation/test_shared_verification.py::test_a_long_report_is_read_as_it_was_written_and_deleted_with_the_next",
    ),
    Mutant(
        "earlier-verified-in-silence",
        "migrate/refusals.py",
        '    return begun[-1].id if begun else ""\n',
        '    return ""\n',
        "what a later migration did looks as if the earlier one had failed",
        test="tests/unit/migrate/test_migration_refusals.py::test_a_verification_says_which_later_migration_may_have_made_what_differs",
    ),
)
