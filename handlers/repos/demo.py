"""The demo: users star repositories and work on issues, and the counts follow."""

import sys

from handlers.playing import play
from handlers.repos.handlers import SHAPE, app
from handlers.repos.traffic import Traffic
from handlers.system import System

SYSTEM = System(app, Traffic, SHAPE)


def main(*, writes: int = 3_000, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
