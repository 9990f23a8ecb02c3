"""The steps of a migration by their names, as people give them."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from streamkit.migrate.operate import steps

AT_ONCE = "contract at once"
"""The step by which people say that no old code writes any more."""


def step_of(name: str) -> Callable[..., Any]:
    """Return the command of a person for a step of a migration that was begun."""
    if name == AT_ONCE:
        return partial(steps.contract, old_code=False)
    if name == "rollback":  # new code of most tests writes until the old items count again
        return partial(steps.rollback, new_code=False)
    return cast("Callable[..., Any]", getattr(steps, name))
