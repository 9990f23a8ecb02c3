"""The demo: students enrol while students and sports are renamed."""

import sys

from handlers.playing import play
from handlers.school.handlers import SHAPE, app
from handlers.school.traffic import Traffic
from handlers.system import System

SYSTEM = System(app, Traffic, SHAPE)


def main(*, writes: int = 700, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
