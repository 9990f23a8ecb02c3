"""Deliberate bugs where a migration takes items whole, or adds up what both sides have counted."""

from tests.mutants.mutant import Mutant

_UNIT = "tests/unit/migrate/test_migration_policies.py::"
_MODEL = "tests/models/test_policies.py::"

MUTANTS = (
    Mutant(
        "whole-items-merged-by-field",
        "migrate/families/settlement.py",
        '    if settle == "item":\n',
        "    if False:\n",
        "an item comes about that neither old nor new code has written",
        test=f"{_UNIT}test_a_side_is_taken_whole_and_what_both_have_counted_is_added_all_the_same",
    ),
    Mutant(
        "a-decision-old-code-has-seen",
        "migrate/families/settlement.py",
        "    if settled.overruled:",
        "    if False:",
        "an old write is merged with a new item that old code has never seen",
        test=f"{_UNIT}test_old_code_has_not_seen_a_whole_new_item_that_a_person_has_decided_for",
    ),
    Mutant(
        "equal-counters-agree",
        "migrate/families/settlement.py",
        "is not None and new.added(name) is not None\n",
        "is not None and new.added(name) not in (None, added)\n",
        "of two increments by the same number one is lost",
        test=f"{_UNIT}test_differences_add_up_exactly",
    ),
    Mutant(
        "counters-put-alike-agree",
        "migrate/families/settlement.py",
        "    return value is not None and value.startswith(COUNTED) and name in",
        "    return False and name in",
        "two counters that were put anew count as one, because they are equal",
        test=f"{_UNIT}test_equal_counters_that_were_put_anew_do_not_agree",
    ),
    Mutant(
        "a-removed-counter-is-a-difference",
        "migrate/families/settlement.py",
        "        written = (before and not value) or ",
        "        written = ",
        "an increment of one side undoes that the other one has removed the counter",
        test=f"{_UNIT}test_a_counter_that_was_removed_is_in_conflict_with_one_that_was_added_to",
    ),
    Mutant(
        "a-base-that-takes-up-the-counter",
        "migrate/families/settlement.py",
        " | decided) - settled.added.keys():\n",
        " | decided):\n",
        "without reverse= a delete takes what old code has never seen away",
        test=f"{_UNIT}test_a_base_takes_up_only_what_was_carried_of_a_counter",
    ),
    Mutant(
        "a-stubs-number-is-the-counter",
        "migrate/items/counters.py",
        "        return {**there, **said, **sums}\n",
        "        return {**there, **said}\n",
        "what old code adds at a stub replaces all that was counted",
        test=f"{_UNIT}test_what_is_written_at_a_stub_is_added_to_what_the_stub_stands_for",
    ),
    Mutant(
        "a-counter-that-a-function-changes",
        "migrate/items/counters.py",
        "            if olds and news and numbers[0] != numbers[1]:\n",
        "            if False:\n",
        "what is added at a stub of such a counter is another number",
        test=f"{_UNIT}test_a_function_that_makes_another_number_of_a_counter_is_told_so",
    ),
    Mutant(
        "items-made-alike-are-a-pair",
        "migrate/families/plans.py",
        " or (counts and self.rules.makes_old):\n",
        ":\n",
        "old and new code make an item by adding 1, and one of both is lost",
        test=f"{_MODEL}test_what_two_have_made_by_counting_alike_is_left_to_people",
    ),
    Mutant(
        "a-rollback-that-carries-what-was-overruled",
        "migrate/families/plans.py",
        "            old = self._old_items(family, sides, now)\n",
        "            old = self._old_items(family, sides, sides.image)\n",
        "what a person has decided against is written all the same",
        test="tests/models/test_families.py::test_in_a_rollback_a_decision_for_the_old_item_leaves_what_was_overruled_out",
    ),
    Mutant(
        "digests-with-a-policy",
        "kinds/migration_function.py",
        '    if options.settle != "field" or options.counters:',
        "    if True:",
        "every migration is taken to be changed after it was applied",
        test=f"{_UNIT}test_a_migration_without_a_policy_has_the_digest_of_before",
    ),
    Mutant(
        "decision-that-is-asked-again",
        "migrate/families/settlement.py",
        'decided = _both(old, new) if take == "new" else frozenset[Field]()',
        "decided = frozenset[Field]()",
        "what a person has decided against an item put anew is a conflict again with its next write",
        test="tests/unit/migrate/test_migration_policies.py::test_old_code_has_seen_what_was_decided_about_an_item_that_it_has_put_anew",
    ),
    Mutant(
        "stub-taken-for-a-whole-item",
        "migrate/families/settlement.py",
        '        if old.stub and take == "old":\n            clash &= old.changed  # the rest of it is what the other side says\n',
        "",
        "a decision for what was written at a stub takes away what new code wrote in other fields",
        test="tests/unit/migrate/test_migration_policies.py::test_of_a_whole_item_a_stub_gives_only_what_was_written_at_it",
    ),
)
