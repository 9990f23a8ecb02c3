"""Every mutant still applies to the code as it is; `make mutants` says whether one survives."""

from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS

README = Path(__file__).parents[1] / "simulation" / "README.md"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_the_code_as_it_is(mutant):
    text = mutant.applied()
    assert mutant.old != mutant.new
    compile(text, mutant.file, "exec")


def test_mutants_have_names_of_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_the_table_of_mutants_names_each_of_them():
    table = README.read_text()
    assert [m.name for m in MUTANTS if f"| `{m.name}` |" not in table] == []
