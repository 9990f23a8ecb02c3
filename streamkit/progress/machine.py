"""The machine that a process runs on, as far as streamkit uses it; simulations have one, too."""

import random
from dataclasses import dataclass

from streamkit.aws import Aws
from streamkit.progress.clock import Clock


@dataclass(frozen=True, slots=True)
class Machine:
    """Open clients, the process's clock, and its random numbers."""

    aws: Aws
    clock: Clock
    rng: random.Random
