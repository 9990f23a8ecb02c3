"""The session store: everything that follows, under traffic and trouble, and sentence by sentence."""

import pytest

from handlers.sessions.handlers import SHAPE, app
from handlers.sessions.traffic import Traffic
from streamkit.testing import Trouble, trial


@pytest.mark.parametrize("seed", range(4))
def test_the_store_is_what_its_history_says(seed: int) -> None:
    trouble = Trouble(pause=30)
    ran = trial(app, Traffic(users=20), shape=SHAPE, seed=seed, acts=150, trouble=trouble)
    print(ran)
    assert all(comparison.compared for comparison in ran.comparisons)
