"""`streamkit consumers import-kcl`, `to-workers`, `to-lambda`, `join`: change a consumer's host."""

from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio
import typer

from streamkit.cli.consumers import time_of
from streamkit.cli.options import AppArgument, JsonOption, ListenerOption
from streamkit.cli.printing import print_json, print_report, say, tell
from streamkit.cli.running import app_named, settings, with_aws
from streamkit.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.operate.moves import Imported, Moved
    from streamkit.operate.moves.taking_over import TakingOver

T = TypeVar("T")

_LOOK_SECONDS = 2.0
"""The pause between two looks at how far a live join is."""


def import_kcl(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    leases: Annotated[str, typer.Option("--leases", help="The KCL's lease table.")],
    caught_up_at: Annotated[
        str | None,
        typer.Option(
            "--caught-up-at",
            help="A time at which the KCL had read everything: for leases at LATEST, or of which"
            " the checkpoint is older than a day.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Start an app that has never run where a KCL has stopped.

    Stop the KCL's workers first. What they processed after their last checkpoints comes again.
    Exits with 5, and changes nothing, if the leases do not fit the stream.
    """
    from streamkit.operate.moves import import_leases

    caught_up = None if caught_up_at is None else time_of(caught_up_at, "--caught-up-at")

    def work(loaded: "App", aws: "Aws") -> "Awaitable[Imported]":
        return import_leases(loaded, aws, leases, caught_up_at=caught_up, dry_run=dry_run)

    done = _move(app, listener, work)
    if json:
        print_json(done.to_dict())
        return
    for note in done.notes:
        say(note)
    say(
        f"{done.consumer} {'would continue' if dry_run else 'continues'} at {done.positions}"
        " checkpoints;"
        f" {done.finished} shards are finished, {done.unread} begin at their oldest record"
    )


def to_workers(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="A time before which all changes are done for sure."),
    ] = None,
    in_flight: Annotated[
        float, typer.Option("--in-flight", help="The function's time-out, in seconds.")
    ] = 900.0,
    json: JsonOption = False,
) -> None:
    """Move an app from its Lambda functions to workers.

    Start the workers afterwards. It processes the changes that the functions have not done, shuts
    the functions out, and waits until none can run any more. The application may write meanwhile.
    If it is interrupted, run the same command again.
    """
    from streamkit.operate.moves import move_to_workers

    moment = None if since is None else time_of(since, "--since")

    def work(loaded: "App", aws: "Aws") -> "Awaitable[Moved]":
        return move_to_workers(loaded, aws, since=moment, in_flight=in_flight)

    def describe(done: "Moved") -> None:
        say(f"{done.consumer} continues on {done.shards} shards: start workers, delete the mapping")

    print_report(_move(app, listener, work), describe, as_json=json)


def to_lambda(
    app: AppArgument = None,
    *,
    listener: ListenerOption = None,
    wait: Annotated[
        float,
        typer.Option("--wait", help="Wait at most this many seconds for the last worker to stop."),
    ] = 600.0,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Finish a move that was interrupted for so long that records may be lost.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Move an app from its workers to Lambda functions.

    Begin while the workers run, and stop them when it asks for it. Create the mapping afterwards,
    at TRIM_HORIZON. If it is interrupted, run the same command again.
    """
    from streamkit.operate.moves import move_to_lambda

    def ask() -> None:
        if not json:
            tell("stop the workers now; this command waits for them")

    def work(loaded: "App", aws: "Aws") -> "Awaitable[Moved]":
        return move_to_lambda(
            loaded,
            aws,
            wait=wait,
            lease_seconds=settings().lease,
            accept_loss=accept_loss,
            ask_to_stop=ask,
        )

    def describe(done: "Moved") -> None:
        say(f"{done.consumer} is ready for Lambda: create its mapping at TRIM_HORIZON")

    print_report(_move(app, listener, work), describe, as_json=json)


def join(
    app: Annotated[
        str, typer.Argument(metavar="[MODULE:APP]", help="The next version of the app.")
    ],
    handler: Annotated[str, typer.Argument(help="The handler that had a start= until now.")],
    *,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Take it over shard by shard while the workers run: give the version that runs.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make a handler with a start of its own a handler of its app.

    Let it catch up, stop the workers, and give the version of the app that declares the handler
    without a start=. It goes on where it was: each change reaches it once. Exits with 5, and
    changes nothing, if it is behind the app, or changes are parked. If it is interrupted, run the
    same command again, and deploy that version afterwards.

    With --live nothing stands still, and the app that is given still declares the start=.
    """
    from streamkit.operate.moves import join_handler

    loaded = app_named(app)
    if live:
        _join_live(loaded, handler, json=json)
        return
    lease = settings().lease
    done = with_aws(lambda aws: join_handler(loaded, aws, handler, lease_seconds=lease))
    if json:
        print_json(done.to_dict())
        return
    say(
        f"{handler} is one of {done.consumer} now, in generation {done.generation}: it was ahead in"
        f" {done.ahead} of {done.shards} shards"
    )
    say("deploy this version")


def _taken_so_far(found: "TakingOver") -> str:
    text = f"{found.consumer} runs {found.handler} on {found.taken} of {found.shards} shards"
    if not found.queues:
        return text
    held = "1 parked queue holds" if found.queues == 1 else f"{found.queues} parked queues hold"
    command = f"streamkit parked list --listener {found.handler}"
    return f"{text}; {held} it up: redrive or discard what is parked (`{command}`)"


def _join_live(app: "App", handler: str, *, json: bool) -> None:
    """Say how far the app has taken a handler over, until it runs it on every shard."""
    from streamkit.operate.moves.taking_over import take_over

    async def work(aws: "Aws") -> "TakingOver":
        before = None
        async for found in take_over(app, aws, handler):
            if found != before and not json:
                say(_taken_so_far(found))
            before = found
            if found.ended:
                return found
            await anyio.sleep(_LOOK_SECONDS)
        raise InvariantError("a join ends, or is refused")

    done = with_aws(work)
    if json:
        print_json(done.to_dict())
        return
    say(f"{handler} is one of {done.consumer} now: deploy the version without its start=")


def _move(app: str | None, listener: str | None, work: "Callable[[App, Aws], Awaitable[T]]") -> T:
    loaded = app_named(app, listener)
    return with_aws(lambda aws: work(loaded, aws))
