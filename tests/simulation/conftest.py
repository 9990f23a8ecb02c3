"""Every simulated test repeats itself: what is random in it follows one seed.

`make test` also fixes `PYTHONHASHSEED`, which orders sets of texts; `make simulate` is where other
chances are sought.
"""

from collections.abc import Iterator

import pytest

from streamkit.testing.chance import repeatable


@pytest.fixture(autouse=True)
def repeated() -> Iterator[None]:
    with repeatable(0):
        yield
