"""The demo: users talk, join, leave, and change their names."""

import sys

from handlers.chat.handlers import SHAPE, app
from handlers.chat.traffic import Traffic
from handlers.playing import play
from handlers.system import System

SYSTEM = System(app, Traffic, SHAPE)


def main(*, writes: int = 1_200, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
