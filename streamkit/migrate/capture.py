"""Make a migration's own consumer of the stream, which sees every change since it began.

It is a consumer like any other: positions, shards shared among processes, parked changes, and a
start that is in the table before the first pass reads anything. Each run of a migration has a
consumer of its own. It does with a change what a pass does with an item; see `work`.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from streamkit.app import App
from streamkit.changes import Change, Kind
from streamkit.core.handler import Handler, Policy
from streamkit.entity import Entity
from streamkit.kinds.migration import Migration
from streamkit.migrate.state import State
from streamkit.progress.clock import utc

_MARGIN = timedelta(minutes=10)
"""AWS's clock stamps the changes; seeing some changes twice does no harm."""
_POLICY = Policy(
    timeout_seconds=120.0, attempts=3, retry_seconds=2.0, retry_seconds_max=60.0, retry_limit=50
)

Live = Callable[[Change[Any]], Awaitable[None]]
"""Takes a change whose images are items in wire form."""


def capture_app(app: App, migration: Migration, state: State, live: Live) -> App:
    """Make the app of a migration's consumer."""
    entities = [migration.entity]
    if migration.target is not None and migration.to is None and migration.is_pairs:
        entities.append(migration.target)
    return _app(app, migration, state, (state.consumer, app.table), entities, live)


def target_app(app: App, migration: Migration, state: State, live: Live) -> App:
    """Make the app that follows the other table that items are moved to."""
    assert migration.target is not None  # noqa: S101 - checked at declaration, with reverse=
    assert migration.to is not None  # noqa: S101 - what this is for
    place = f"{state.consumer}-to", migration.to  # streams of two tables may have one label
    return _app(app, migration, state, place, [migration.target], live)


def _app(
    app: App,
    migration: Migration,
    state: State,
    place: tuple[str, str],
    entities: list[type[Entity]],
    live: Live,
) -> App:
    typed = app.type_attribute is not None
    consumer, table = place
    capture = App(
        f"{app.name}.{consumer}",
        entities=_others(app, entities, typed=typed),
        table=table,
        type_attribute=app.type_attribute,
        control_table=app.control_table or (None if table == app.table else app.table),
        policy=_POLICY,
        start=utc(state.began) - _MARGIN,
        on_loss="halt",
    )

    async def run(change: Change[Any]) -> None:
        await live(change)

    for number, entity in enumerate(dict.fromkeys(entities)):
        if number and _alike(entity, entities[0], typed=typed):
            continue  # it is routed as the source; the item itself shows which of the two it is
        capture.add_handler(_handler(migration, state, entity, number, run))
    return capture


def _handler(
    migration: Migration, state: State, entity: type[Entity], number: int, run: Live
) -> Handler:
    return Handler(
        name=f"migrate-{number}",
        entity=entity,
        kinds=frozenset(Kind),
        run=run,
        declared=migration.declared,
        is_async=True,
        policy=_POLICY,
        commutes=True,
        definition=f"{migration.digest}{state.direction}",
        writes=frozenset(),
        effects=False,
        delivery="at_least_once",
        raw=True,
    )


def _others(app: App, own: list[type[Entity]], *, typed: bool) -> list[type[Entity]]:
    """Return the entities that are not ours, but whose items fit the templates of ours."""

    def is_own(entity: type[Entity]) -> bool:
        return any(_alike(entity, one, typed=t) for one in own for t in {typed, False})

    found: list[type[Entity]] = []
    for entity in app.known:
        if not is_own(entity) and not any(_alike(entity, one, typed=typed) for one in found):
            found.append(entity)
    return found


def _alike(one: Any, other: Any, *, typed: bool) -> bool:
    """Return whether routing could not tell two entities apart."""
    first, second = one.__entity__, other.__entity__
    if typed:
        return bool(first.type == second.type)
    shapes = [
        (s.pk.shape, s.sk.shape if s.sk else None, s.sk and s.sk.text == s.pk.text)
        for s in (first, second)
    ]
    return bool(shapes[0] == shapes[1])
