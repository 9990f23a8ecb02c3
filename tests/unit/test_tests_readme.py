"""What `tests/README.md` names exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (TESTS / "README.md").read_text())


def test_every_test_that_the_readme_names_is_there():
    assert len(NAMED) > 15
    for path, name in NAMED:
        assert f"def {name}(" in (TESTS / path).read_text(), f"{path} has no {name}"
