"""The machine that a process runs on, as far as streamkit knows it; simulations have one, too."""

import random
from dataclasses import dataclass

from streamkit.aws import Aws
from streamkit.clock import Clock


@dataclass(frozen=True, slots=True)
class Machine:
    """Open clients, and the process's time and chance."""

    aws: Aws
    clock: Clock
    rng: random.Random
