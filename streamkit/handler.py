"""Handlers: what `App` registers, in the one shape that dispatch runs.

Every kind of handler (a function, an aggregate, later a fan-out or a mirror) becomes a `Handler`:
a name, what it listens to, and `run`, which turns one change into effects.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from streamkit.changes import Kind
from streamkit.declaration import Declaration
from streamkit.effects import Result
from streamkit.entity import Entity
from streamkit.when import When

OnFailure = Literal["park", "block", "skip"]
"""What becomes of a change that still fails after its retries.

`park`: it is set aside in the table and later changes of its item queue behind it; all else flows
on. `block`: the shard waits and tries again until it succeeds. `skip`: it is counted and dropped.
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a handler may take, and what happens when it fails.

    `attempts` counts the first one. The pause before the second is `backoff_seconds`, then it
    doubles; retries here are short because the item's later changes wait for them.
    """

    timeout_seconds: float = 10.0
    attempts: int = 3
    backoff_seconds: float = 0.1
    on_failure: OnFailure = "park"


@dataclass(frozen=True)
class Handler:
    """One registered handler.

    `run` is called with the change and what `needs` asks for; it is a coroutine function if
    `is_async`. `commutes` says that the order of an item's changes does not matter to it, so that
    a parked one holds up nothing. `definition` is what makes it another handler when it changes.
    """

    name: str
    entity: type[Entity]
    kinds: frozenset[Kind]
    run: Callable[..., Result | Awaitable[Result]]
    declared: Declaration
    is_async: bool = False
    when: When | None = None
    needs: dict[str, type[Any]] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    commutes: bool = False
    is_aggregate: bool = False
    definition: str = ""
