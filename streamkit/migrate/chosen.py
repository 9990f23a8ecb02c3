"""Say whether a migration may be about chosen items, and whether their list can be read.

In: a migration, and where the list of their keys is. Out: its tag and its size. On failure:
`ConfigurationError` says what prevents it.
"""

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Migration
from streamkit.migrate.keys import tag_of


async def chosen_keys(app: App, aws: Aws, migration: Migration, source: str) -> tuple[str, int]:
    """Read a list of keys to its end; return its tag and its size.

    Raises:
        ConfigurationError: the migration is about all items, or a line is no key of the table.
    """
    if migration.moves or migration.mode == "aggregate":
        raise ConfigurationError(
            f"migration {migration.id}: mode={migration.mode!r} is about all items, because it ends"
            " when none is left in the old shape; --keys-from goes with in_place, touch and derive"
        )
    if migration.index is not None:
        raise ConfigurationError(
            f"migration {migration.id} reads index {migration.index.name}: leave --keys-from out"
        )
    return await tag_of(source, (await survey(app, aws)).table)
