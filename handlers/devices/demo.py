"""The demo: devices that report, workers that have a hard life, a checked result."""

import sys

from handlers.devices.handlers import SHAPE, app
from handlers.devices.traffic import Traffic
from handlers.playing import play
from handlers.system import System

SYSTEM = System(app, Traffic, SHAPE)


def main(*, writes: int = 1_500, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
