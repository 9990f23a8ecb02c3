"""The demo: lines of this month and late ones of the last, a hard life, a checked result."""

import sys
from datetime import timedelta

from handlers.logs.handlers import SHAPE, app, errors_table, month_table, this_month
from handlers.logs.traffic import Traffic
from handlers.playing import play
from handlers.system import System
from streamkit import TableShape

LAST_MONTH = this_month - timedelta(days=1)

SYSTEM = System(
    app,
    Traffic,
    SHAPE,
    others={
        month_table(LAST_MONTH): TableShape(),
        errors_table(this_month): TableShape(),
    },
)


def main(*, writes: int = 2_000, seed: int = 1) -> int:
    """Run the demo; 0 if the table is as it must be, else 1."""
    return play(SYSTEM, writes=writes, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
