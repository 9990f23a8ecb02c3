"""`streamkit migrate new`: write the file of a migration, empty or as a draft."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.migration_options import SampleOption, app_with_migrations
from streamkit.cli.options import RequiredApp
from streamkit.cli.printing import say
from streamkit.cli.running import with_aws
from streamkit.errors import some_of

if TYPE_CHECKING:
    from collections import Counter

    from streamkit.migrate.plan.drafting import EntityDraft


def new(
    app: RequiredApp,
    name: Annotated[str, typer.Argument(help="A name for the migration, such as order_status.")],
    *,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            help="The entity whose items it changes; not needed if the app has only one.",
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option("--mode", help="in_place, touch, rekey, split, merge, derive or aggregate."),
    ] = "in_place",
    named: Annotated[
        bool, typer.Option("--named", help="Give it the name instead of the next number.")
    ] = False,
    autogenerate: Annotated[
        bool,
        typer.Option(
            "--autogenerate", help="Compare the entities with a sample of the table, for a draft."
        ),
    ] = False,
    sample: SampleOption = "1000",
) -> None:
    """Write the file of a new migration, under the next number.

    It works unchanged. With --autogenerate it reads a sample, says what items lack that a put would
    store today, and writes a draft for the entity with most to do. Exits with 0 and writes nothing
    if none differs.
    """
    from streamkit.migrate.operate.scaffold import entities_of, write_migration
    from streamkit.migrate.plan.drafting import compare_entities

    loaded = app_with_migrations(app)
    chosen: Any = mode
    lines = None
    left = False
    if autogenerate:
        beside, chosen_ones = (entities_of(loaded, app, name) for name in (None, entity))
        found = with_aws(
            lambda aws: compare_entities(loaded, aws, chosen_ones, sample, beside=beside)
        )
        first = _most_to_do(found)
        if first is None:
            return
        entity, lines = first.entity.__name__, first.lines
        chosen = first.mode if mode == "in_place" else mode
        left = first.moves and chosen == "in_place"
    path = write_migration(loaded, app, name, entity=entity, mode=chosen, named=named, draft=lines)
    say(f"wrote {path}")
    if left:
        say("once it is done, --autogenerate writes another one, for the items with another key")


def of_none_text(found: "Counter[str]") -> str:
    """Say how many items of a sample belong to no entity, and what they say is their type."""
    types = [f"{count} of type {name}" for name, count in found.most_common() if name]
    types += [f"{found['']} without a type"] * bool(found[""] and types)
    said = f": {some_of(types)}" if types else "; compare its templates with their keys"
    return f"{found.total()} of them are of no entity of the app, and were not compared{said}"


def _most_to_do(found: "list[EntityDraft]") -> "EntityDraft | None":
    """Print what was found; return the entity with most to do, None if no item differs."""
    for one in found[:1]:
        say(f"looked at {one.looked_at} items of yours, of {one.scanned} that were read")
        if one.of_none:
            say(of_none_text(one.of_none))
    for one in found:
        for line in one.lines:
            say(f"{one.entity.__name__}: {line}")
    first = next((one for one in found if sum(one.found.values())), None)
    if first is None:
        say("no item of the sample differs from what a put would store today")
        absent = ", ".join(one.entity.__name__ for one in found if not one.items)
        if absent:
            say(f"the sample has no item of {absent}: a larger one is read with --sample 100%")
    return first
