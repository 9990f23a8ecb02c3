"""The joined app: an app with the handlers that it takes over, as its consumer's items say.

In: the app as it is declared. Out: the app that runs. It has the same listeners, because the own
consumer of such a handler goes on until the app runs the handler on every shard.
"""

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import open_store
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import TAKEN, host_of
from streamkit.fleet.taken import marks_of, own_store
from streamkit.progress.cursor import CursorStore


async def app_as_run(app: App, aws: Aws) -> App:
    """Return an app as its workers run it, for commands that compare it with their version.

    Raises:
        ConfigurationError: a table is missing or has no stream, or may not be described.
    """
    return await joined_app(app, await open_store(app, aws))


async def joined_app(app: App, store: CursorStore) -> App:
    """Return an app with the handlers that it takes over, or has taken over."""
    apart = {name for name, child in app.listeners.items() if child.exact}
    newest = await newest_generation(store) if apart else None
    names = apart & marks_of(newest.joins).keys() if newest else set[str]()
    for name in sorted(apart - names):
        if await host_of(own_store(store, name)) == TAKEN:
            names.add(name)
    return app.with_joined(names) if names else app
