"""The pytest plugin: a fixture that runs an app on the local engine in virtual time.

Put `pytest_plugins = ["streamkit.testing.plugin"]` into your conftest.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from streamkit.testing.harness import Harness, HarnessOf


@pytest.fixture
def harness_of() -> Iterator[HarnessOf]:
    """Make a `Harness` of an app; it is closed when the test ends.

    The arguments are those of `Harness`: `harness_of(app, shards=4, seed=7)`.
    """
    with ExitStack() as stack:

        def make(app: Any, **options: Any) -> Harness:
            return stack.enter_context(Harness(app, **options))

        yield make
