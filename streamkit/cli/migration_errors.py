"""`streamkit migrate errors`: the items that a migration could not transform."""

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamkit.cli.app_command import AppCommand
from streamkit.cli.exits import ExitCode
from streamkit.cli.migration_options import NumberArgument, app_with_migrations
from streamkit.cli.options import JsonOption, RequiredApp, command_group
from streamkit.cli.printing import print_json, say, tell
from streamkit.cli.running import exit_with, with_aws
from streamkit.errors import some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamkit.app import App
    from streamkit.aws import Aws
    from streamkit.migrate.book.errors import ItemError
    from streamkit.migrate.book.state import State
    from streamkit.operate.redrive import QueueReport

errors = command_group("List, show, retry or waive items that could not be migrated.")


ItemArgument = Annotated[
    str, typer.Argument(metavar="ITEM", help="The item, as `errors list` names it.")
]
KindOption = Annotated[
    str | None, typer.Option("--kind", help="Only items of this kind, such as transform.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="JSON",
        help='The item with this key, as in \'{"PK": "ORDER#1", "SK": "ORDER"}\'; repeatable.',
    ),
]


@errors.command("list", cls=AppCommand)
def list_(
    app: RequiredApp,
    number: NumberArgument,
    *,
    kind: KindOption = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details", help="Show keys and the messages of exceptions, which may hold item data."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the items that failed, by reason; keys are hashed."""
    from streamkit.cli.migration_found import describe_errors
    from streamkit.migrate.verify.mending import chosen, list_errors

    _require_kind(kind)
    loaded = app_with_migrations(app)
    found = chosen(with_aws(lambda aws: list_errors(loaded, aws, number)), None, kind)
    if json:
        more = [{"key": one.key, "detail": one.detail} if details else {} for one in found]
        print_json([one.to_dict() | beside for one, beside in zip(found, more, strict=True)])
    else:
        describe_errors(found, details=details)


@errors.command(cls=AppCommand)
def show(app: RequiredApp, number: NumberArgument, item: ItemArgument) -> None:
    """Print one failed item as JSON, with its key and message.

    The message is that of the exception, which may hold item data.
    """
    from streamkit.migrate.verify.mending import list_errors

    loaded = app_with_migrations(app)
    found = with_aws(lambda aws: list_errors(loaded, aws, number))
    for one in found:
        if one.id == item:
            print_json({**one.to_dict(), "detail": one.detail, "key": one.key})
            return
    tell("there is no such item (any more); `errors list` shows all")
    exit_with(ExitCode.PROBLEMS)


@errors.command(cls=AppCommand)
def retry(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM...",
            help="The items, as `errors list` names them; without any, all items.",
        ),
    ] = None,
    *,
    kind: KindOption = None,
    key: KeyOption = None,
    take: Annotated[
        Literal["old", "new"] | None,
        typer.Option(
            "--take", help="Decide for the old or the new side where both have written the same."
        ),
    ] = None,
) -> None:
    """Try failed items again; exit with 7 if one fails again.

    Mend the code or the data first. Without an item or a kind, the parked changes of the
    migration's own consumer are tried again, too.
    """
    from streamkit.migrate.book.state_book import open_book
    from streamkit.migrate.operate.status import phase_of
    from streamkit.migrate.verify.mending import chosen, list_errors, retry_errors
    from streamkit.operate.redrive_followed import redrive_followed

    _require_kind(kind)
    if take is not None and not (items or key):
        raise typer.BadParameter("--take decides about items that you name, by ITEM or --key")
    loaded = app_with_migrations(app)
    names = _names(loaded, number, items, key)

    async def work(aws: "Aws") -> "tuple[Sequence[ItemError], int, int, State]":
        if names is None and kind is None:
            followed.extend(await redrive_followed(loaded, aws, number))
        failed = chosen(await list_errors(loaded, aws, number), names, kind)
        counts = await retry_errors(loaded, aws, number, names, kind=kind, take=take or "")
        return failed, *counts, await (await open_book(loaded, aws)).read(number)

    followed: list[QueueReport] = []
    failed, right, wrong, state = with_aws(work)
    again = _followed_lines(followed)
    say(f"{right} items are right now, {wrong} are not")
    if right and not wrong and (state.paused or state.phase == "blocked"):
        say(f"now run `streamkit migrate resume {app} {number}`, then `join`")
    elif right and not wrong:
        say(f"migration {number} is {phase_of(state)}; nothing has to be resumed")
    if wrong:
        tell("see `streamkit migrate errors list`")
    if wrong or again:
        exit_with(ExitCode.WAITS_FOR_PEOPLE)
    _require_errors(failed, names, kind)


def _followed_lines(reports: "Sequence[QueueReport]") -> bool:
    """Say what became of parked changes; return whether one failed again."""
    if reports:
        say(f"{sum(one.done for one in reports)} parked changes of its own consumer are done now")
    again = [one.failure.kind for one in reports if one.failure is not None]
    if again:
        tell(f"{len(again)} failed again: {some_of(sorted({*again}))}")
    return bool(again)


@errors.command(cls=AppCommand)
def waive(
    app: RequiredApp,
    number: NumberArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM...",
            help="The items, as `errors list` names them; or say --all, --kind or --key.",
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Waive all items that have failed so far.")
    ] = False,
    kind: KindOption = None,
    key: KeyOption = None,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", help="Say why the items may stay as they are; the reason is stored."
        ),
    ],
) -> None:
    """Let items stay as they are; your name and the reason are stored."""
    from streamkit.migrate.book.errors import DECIDED
    from streamkit.migrate.verify.mending import chosen, list_errors, waive_errors

    _require_kind(kind)
    if every == bool(items or key or kind):
        raise typer.BadParameter("name items as `errors list` does, or say --all, --kind or --key")
    loaded = app_with_migrations(app)
    named = _names(loaded, number, items, key)

    async def work(aws: "Aws") -> "tuple[Sequence[ItemError], int]":
        failed = chosen(await list_errors(loaded, aws, number), named, kind)
        count = await waive_errors(loaded, aws, number, named, reason, kind=kind)
        return [one for one in failed if not one.waived], count

    failed, count = with_aws(work)
    decided = sum(one.kind in DECIDED for one in failed)
    say(f"{count} items were waived")
    if decided:
        tell(
            f"{decided} items cannot be waived: decide with `errors retry ITEM --take old` or"
            " `--take new`"
        )
        exit_with(ExitCode.PROBLEMS)
    _require_errors(failed, named, kind)


def _require_kind(kind: str | None) -> None:
    """Refuse a kind of errors that does not exist.

    Raises:
        BadParameter: it says which kinds there are.
    """
    from streamkit.migrate.book.errors import KINDS

    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"--kind {kind}: no such kind; there are {', '.join(KINDS)}")


def _require_errors(
    failed: "Sequence[ItemError]", named: "set[str] | None", kind: str | None
) -> None:
    """Exit with a message if some of the named items have no error, or none of this kind."""
    without = sorted((named or set()) - {one.id for one in failed})
    if without:
        so = "" if kind is None else f" with kind {kind}"
        tell(
            f"{len(without)} of these items have not failed{so}, or are right again"
            f" ({some_of(without)}); `streamkit migrate errors list` shows all"
        )
        exit_with(ExitCode.PROBLEMS)


def _names(
    loaded: "App", number: str, items: list[str] | None, keys: list[str] | None
) -> set[str] | None:
    """Return the names of the items that are named, or whose keys are given; None for all.

    Raises:
        BadParameter: a key is not a JSON object of strings and numbers.
    """
    from streamkit.migrate.verify.mending import names_of
    from streamkit.model.codec import encode

    read, found = [], {*(items or ())}
    for text in keys or ():
        try:
            given = json.loads(text, parse_float=Decimal)
            key = {n: v if isinstance(v, dict) else encode(v) for n, v in given.items()}
        except (ValueError, TypeError, AttributeError):
            said = f'--key {text}: not an object as in {{"PK": "ORDER#1"}}'
            raise typer.BadParameter(said) from None
        read.append(key)
    if read:
        found |= with_aws(lambda aws: names_of(loaded, aws, number, read))
    return found or None
