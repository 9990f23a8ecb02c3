"""Every simulated test repeats itself: what is random in it follows one seed.

`make test` also fixes `PYTHONHASHSEED`, which orders sets of texts; `make simulate` is where other
chances are sought.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from streamkit.testing import Harness
from streamkit.testing.chance import repeatable
from tests.rigs import Rig


@pytest.fixture(autouse=True)
def repeated() -> Iterator[None]:
    with repeatable(0):
        yield


@pytest.fixture
def harness_of() -> Iterator[Callable[..., Harness]]:
    """Make a lenient `Harness`: these tests have sinks of their own, and let changes fail."""
    with ExitStack() as stack:
        yield lambda app, **options: stack.enter_context(Rig(app, **options))
