"""Run an app's handlers on Lambda, behind an event source mapping.

    handler = streamkit.aws_lambda.handler(app)
    migration = streamkit.aws_lambda.migration_handler(app)

Lambda reads the shards and keeps the position; what is done of each item is kept in the table, in
the same transactions as the effects. `batch` turns a batch into commits, `high_water_marks`
keeps what is done, and `attempts` finds changes that kill their function.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streamkit.progress.garbage import importing

with importing():  # a cold start waits for these imports
    from streamkit.app import App
    from streamkit.aws_lambda.host import handler, late_handler, maintenance_handler
    from streamkit.aws_lambda.runtime import Context

__all__ = ["handler", "late_handler", "maintenance_handler", "migration_handler"]


def migration_handler(app: App) -> Callable[[Mapping[str, Any], Context], dict[str, Any]]:
    """Return the function that runs slices of an app's migrations; see `migration`.

    Raises:
        DiscoveryError: a file of a migration is wrong.
    """
    # A migration runs parts of a worker; the functions of a mapping start faster without them.
    from streamkit.aws_lambda.migration import migration_handler as made

    return made(app)
