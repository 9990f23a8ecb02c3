"""`streamkit explain`: how an app sees one item."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.options import JsonOption, RequiredApp
from streamkit.cli.printing import WARN, moment, print_json, say, say_next, table
from streamkit.cli.running import app_named, with_aws

if TYPE_CHECKING:
    from streamkit.operate.explanation import Explanation, Listening
    from streamkit.operate.sightings import Sighting


def explain(
    app: RequiredApp,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="The item's partition key, and its sort key if the table has one.",
        ),
    ],
    *,
    records: Annotated[
        bool, typer.Option("--records", help="Also look for the item's changes in the stream.")
    ] = False,
    pages: Annotated[
        int, typer.Option("--pages", min=1, help="Read at most this many pages of the stream.")
    ] = 200,
    history: Annotated[
        bool, typer.Option("--history", help="Also list every change of it in the archive.")
    ] = False,
    show_data: Annotated[
        bool, typer.Option("--show-data", help="Print the item's values.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Explain an item: its handlers, parked changes and last writer.

    The app's listeners are included. --records reads each shard from its oldest record; AWS allows
    two readers of a shard, so it may slow down a worker. --history also reads every object of the
    app's archive, and says what the handlers would make of each change now: those that only return
    effects are run for it, and nothing is written.
    """
    from streamkit.cli.following import after_explanation
    from streamkit.operate.explanation import explain_item

    if len(key) > 2:
        raise typer.BadParameter(
            f"{len(key)} values for a key; give the partition key, and the sort key if there is one"
        )
    loaded = app_named(app)
    pk, sk = key[0], key[1] if len(key) > 1 else None
    found = with_aws(
        lambda aws: explain_item(
            loaded,
            aws,
            pk,
            sk,
            records=records,
            pages=pages,
            show_data=show_data,
            history=history,
        )
    )
    if json:
        print_json(found.to_dict())
    else:
        _describe(found, history=history)
        say_next(app, after_explanation(found))


def _describe(found: "Explanation", *, history: bool) -> None:
    what = {
        "control": "an item of streamkit's own",
        "unknown": "an item of no entity that the app knows",
    }
    say(f"{found.entity or what[found.kind]} {found.digest} on table {found.table}")
    say(f"{len(found.attributes)} attributes" if found.exists else "it does not exist now")
    if found.written_by and not found.hops:  # what a handler writes has passed through one
        say(f"last written by the migration {found.written_by}")
    elif found.written_by:
        handlers = "1 handler" if found.hops == 1 else f"{found.hops} handlers"
        say(f"last written by the handler {found.written_by}, {handlers} after a user")
    if found.problem:
        say(f"problem: {found.problem}")
    say()
    if found.listening:
        columns = ("handler", "listens to", "when", "queue", "state", "parked", "error")
        table(columns, [_row(one) for one in found.listening])
    else:
        say("no handler listens to it")
    if found.groups:
        say()
        table(("counts in", "group"), [(one.aggregate, one.key) for one in found.groups])
    say()
    say(f"its next change comes through one of {found.shards} open shards")
    if found.sightings is not None:
        _describe_sightings(found.sightings)
        if not found.whole and history:
            say("the archive has gaps: `streamkit archive verify` names them", **WARN)
        elif not found.whole:
            say("not all of it was read; --pages reads more of the stream")
    if found.data is not None:
        print_json(found.data)


def _row(one: "Listening") -> tuple[str, ...]:
    return (
        f"{one.consumer}/{one.handler}",
        "|".join(one.kinds) or "not any more",
        one.when or "-",
        one.queue,
        f"{one.state} for {', '.join(one.waits_for)}" if one.waits_for else one.state,
        str(len(one.parked)),
        (one.parked[0].error or "waits") if one.parked else "-",
    )


def _describe_sightings(found: "tuple[Sighting, ...]") -> None:
    rows = [
        (
            moment(one.created_at),
            one.kind,
            one.shard,
            one.position.lstrip("0"),
            f"{one.origin} ({one.hops})" if one.hops else one.origin,
            ", ".join(f"{name}: {state}" for name, state in one.states.items()),
            ", ".join(f"{n}: {one.makes[n]}" if n in one.makes else n for n in one.runs) or "-",
        )
        for one in found
    ]
    if rows:
        table(("made (UTC)", "change", "shard", "position", "by", "consumers", "runs"), rows)
    else:
        say("no change of it was found")
    if any("to come" in one.states.values() for one in found):
        say("to come: the stored position is before it; a change without effects is stored later")
