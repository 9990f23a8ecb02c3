"""The joined app: an app with the handlers that it takes over, as its consumer's items say.

In: the app as it is declared. Out: the app that runs. It has the same listeners, because the own
consumer of such a handler goes on until the app runs the handler on every shard.
"""

from streamkit.app import App
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import TAKEN, host_of
from streamkit.fleet.taken import marks_of, own_store
from streamkit.progress.cursor import CursorStore


async def joined_app(app: App, store: CursorStore) -> App:
    """Return an app with the handlers that it takes over, or has taken over."""
    apart = {name for name, child in app.listeners.items() if child.exact}
    newest = await newest_generation(store) if apart else None
    names = apart & marks_of(newest.joins).keys() if newest else set[str]()
    for name in sorted(apart - names):
        if await host_of(own_store(store, name)) == TAKEN:
            names.add(name)
    return app.with_joined(names) if names else app
