"""Repeatable chance: within `repeatable`, everything random in the process follows one seed.

The virtual loop and the engine have generators of their own. The rest is what libraries use: the
module `random` (the SDK's pauses between retries), generators that are made without a seed, UUIDs
(the names of workers and of commits), and the names of host and process. The order of Python's sets
of texts follows `PYTHONHASHSEED`; two processes repeat each other exactly only if it is the same in
both. A default of a dataclass that names `random.Random` itself keeps the class that was there when
its module was imported, and escapes; a function that looks it up does not.
"""

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Make all chance follow a seed until the end of the block; then restore it."""
    rng = random.Random(seed)
    state = random.getstate()
    random.seed(seed)

    def draw_uuid() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    class Seeded(random.Random):
        """A generator that takes its seed from the block's generator if it is given none."""

        def __init__(self, seed: Any = None) -> None:
            super().__init__(rng.getrandbits(64) if seed is None else seed)

    try:
        with (
            mock.patch("uuid.uuid4", draw_uuid),
            mock.patch("random.Random", Seeded),
            mock.patch("os.getpid", return_value=1),
            mock.patch("socket.gethostname", return_value="host"),
        ):
            yield
    finally:
        random.setstate(state)
