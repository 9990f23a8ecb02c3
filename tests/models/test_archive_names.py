"""Our names of objects leave nothing open, and what looks simpler breaks: rows W of the archive."""

import pytest

from tests.models.archive_names import NAIVE, SAFE, Model
from tests.models.explorer import explore


@pytest.mark.parametrize("name", SAFE)
def test_no_schedule_of_writers_and_a_reader_breaks_a_name_that_is_right(name):
    found = explore(Model(*SAFE[name]))
    assert found.broken == {}
    assert len(found.worlds) > 500


@pytest.mark.parametrize("name", NAIVE)
def test_a_name_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert breaks in explore(Model(rules, bound), until=breaks).broken
