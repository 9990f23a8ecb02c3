"""Every mutant still applies to the code as it is; `make mutants` says whether one survives."""

from pathlib import Path

from tests.mutants.mutants import MUTANTS
from tests.passed import LONG

ROOT = Path(__file__).parents[2]


def test_each_mutant_applies_to_the_code_as_it_is_and_is_a_program():
    wrong = []
    for mutant in MUTANTS:
        try:
            compile(mutant.applied(), mutant.file, "exec")
        except (OSError, SyntaxError, ValueError) as error:
            wrong.append(f"{mutant.name}: {error}")
        if mutant.old == mutant.new:
            wrong.append(f"{mutant.name}: changes nothing")
    assert not wrong, "\n".join(wrong)


def test_mutants_have_names_of_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_the_test_that_catches_a_mutant_is_there():
    missing = []
    for mutant in MUTANTS:
        file, _, name = mutant.test.partition("::")
        if mutant.test and f"def {name.partition('[')[0]}(" not in (ROOT / file).read_text():
            missing.append(f"{mutant.name}: {mutant.test}")
    assert not missing, "\n".join(missing)


def test_three_of_four_mutants_are_caught_by_a_quick_test():
    places = (ROOT / "tests/quick.txt").read_text().split()
    left_out = tuple(one.partition("=")[2] for one in places if one.startswith("--"))
    quick = tuple(one for one in places if not one.startswith("--"))
    tests = [mutant.test for mutant in MUTANTS]
    caught = [test for test in tests if test.startswith(quick) and not test.startswith(left_out)]
    assert len(caught) >= 0.75 * len(MUTANTS)


def test_of_fifty_mutants_one_at_most_needs_a_test_that_make_test_leaves_out():
    needing = [mutant.name for mutant in MUTANTS if mutant.test.startswith(LONG)]
    assert len(needing) <= len(MUTANTS) / 50
