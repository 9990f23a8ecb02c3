"""The demo: authors who publish, roll back and throw away, and a history without gaps."""

import sys

from handlers.documents.handlers import SHAPE, app
from handlers.documents.traffic import Traffic
from handlers.playing import play
from handlers.system import System

SYSTEM = System(app, Traffic, SHAPE)


def main(*, writes: int = 1_200, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
