"""List the aggregates of an app, each with its state.

In: an app and clients. Out: one `AggregateFacts` each: its measures, how it is kept, and whether
its values are reliable. Only the generation's item is read, and one for each build.
"""

from dataclasses import dataclass
from typing import Any, Literal

from streamkit.aws import Aws
from streamkit.core.consumer import Consumer
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import newest_generation
from streamkit.kinds.aggregate.aggregate import Aggregate, source_of
from streamkit.kinds.aggregate.backfill import left_out
from streamkit.kinds.aggregate.recount import measure_names
from streamkit.model.json_fields import JsonFields

State = Literal["not started", "live", "building", "needs rebuild", "left out some", "approximate"]
"""The state of an aggregate.

`live`: it follows its source exactly since its consumer began to count, or over all items if it was
rebuilt; `left out some`: the same, except for items that its last rebuild had to leave out, until
they are fixed and it is rebuilt once more; `building`: a rebuild is under way, and its values are
too low until it ends; `needs rebuild`: it has missed changes, or its definition has changed;
`approximate`: declared so; `not started`: no worker that runs knows it as it is defined here.
"""


@dataclass(frozen=True, slots=True)
class AggregateFacts(JsonFields):
    """One aggregate: `measures` by attribute, `spread` over so many items a group.

    `rebuilt` is when its last rebuild had counted everything except the items that are `left_out`
    (epoch seconds, 0 for never).
    """

    name: str
    state: State
    source: str
    measures: dict[str, str]
    spread: int
    onto: str | None
    declared: str
    rebuilt: int = 0
    left_out: int = 0


async def list_aggregates(app: Consumer, aws: Aws) -> list[AggregateFacts]:
    """Return an app's aggregates, in the order of their declaration.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    store = await open_store(app, aws)
    generation = await newest_generation(store)
    left = await left_out(store, generation.builds) if generation else {}
    counted = generation.aggregates if generation else {}
    definitions = {handler.name: handler.definition for handler in app.handlers}
    rebuild = generation.rebuild if generation else frozenset()
    found = []
    for aggregate in app.aggregates:
        name, options = aggregate.__name__, aggregate.__options__
        known = counted.get(name)
        state: State = "live" if known and known == definitions[name] else "not started"
        build = generation.builds.get(name) if generation else None
        if build is not None and build.under_way and name not in rebuild:
            state = "building"
        elif name in rebuild:
            state = "needs rebuild"
        elif left.get(name):
            state = "left out some"
        elif options.approximate:
            state = "approximate"
        found.append(
            AggregateFacts(
                name=name,
                state=state,
                source=source_of(aggregate).__name__,
                measures=measure_names(aggregate),
                spread=options.spread,
                onto=options.onto.__name__ if options.onto else None,
                declared=str(aggregate.__declaration__),
                rebuilt=build.scanned if build else 0,
                left_out=left.get(name, 0),
            )
        )
    return found


def aggregate_named(app: Consumer, name: str) -> type[Aggregate[Any]]:
    """Return an app's aggregate by its class name.

    Raises:
        ConfigurationError: there is none.
    """
    for aggregate in app.aggregates:
        if aggregate.__name__ == name:
            return aggregate
    names = ", ".join(aggregate.__name__ for aggregate in app.aggregates)
    raise ConfigurationError(f"{app.name} has no aggregate {name!r}; it has {names or 'none'}")
