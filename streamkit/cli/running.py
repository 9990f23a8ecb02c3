"""Running: a synchronous command runs async work, with the apps and settings that it names."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio
import typer
from pydantic import ValidationError

from streamkit.cli.exits import ExitCode
from streamkit.errors import ConfigurationError
from streamkit.settings import Settings

if TYPE_CHECKING:
    from streamkit.app import App
    from streamkit.aws import Aws

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run async work to its end; an interrupt exits with its own exit code."""
    try:
        return anyio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None


async def looks_at(
    look: Callable[[], Awaitable[T]], every: float, looks: int | None
) -> AsyncIterator[T]:
    """Yield what a look finds every `every` seconds: `looks` times, or for ever if that is None."""
    for number in count(1):
        yield await look()
        if number == looks:
            return
        await anyio.sleep(every)


def with_aws(work: "Callable[[Aws], Awaitable[T]]") -> T:
    """Run async work with open clients, configured by the usual means of the AWS SDK.

    Results go to stdout. Only errors are logged, and that a call is repeated, because the command
    waits for it, perhaps for ever. The settings may ask for more.
    """
    from streamkit.aws import connect

    chosen = settings()
    if "log_level" in chosen.model_fields_set:
        set_up_logs(chosen, chosen.log_level)
    else:
        set_up_logs(chosen, "error", besides=("aws.repeated",))

    async def connected() -> T:
        async with connect() as aws:
            await reach(aws)
            return await work(aws)

    return run(connected)


async def reach(aws: "Aws") -> None:
    """Check that DynamoDB answers, because a worker would wait for ever for a missing service.

    Any answer of the service is enough, a refusal too; permissions are checked later.

    Raises:
        BotoCoreError: an endpoint cannot be reached, or there is no region or no credentials.
        ConfigurationError: another program answers there.
    """
    from streamkit.aws import AwsError, code_of

    for client, call in (
        (aws.dynamodb, aws.dynamodb.describe_endpoints),
        (aws.streams, aws.streams.list_streams),
    ):
        try:
            await call()
        except AwsError as error:
            # The SDK's own errors may have a member `response`, which is None.
            if not getattr(error, "response", None):
                raise
            if code_of(error).isdigit():  # the SDK has found no code, and takes the HTTP status
                raise ConfigurationError(
                    f"what answers at {client.meta.endpoint_url} is not DynamoDB (status"
                    f" {code_of(error)}): check the AWS_ENDPOINT_URL_* variables and proxies"
                ) from error


def apps_named(names: list[str] | None) -> "list[App]":
    """Load apps by name; without names, load the app that the settings name.

    Raises:
        AppNotLoaded: one of them cannot be imported.
    """
    from streamkit.cli.loading import load_app

    if not names:
        names = (settings().app or "").split()
    if not names:
        raise typer.BadParameter(
            "name the app as MODULE:APP (or set STREAMKIT_APP, or app in [tool.streamkit])"
        )
    return [load_app(name) for name in names]


def app_named(name: str | None, listener: str | None = None) -> "App":
    """Load one app by name, or the app that the settings name; or return a listener of it.

    Raises:
        AppNotLoaded: the app cannot be imported.
    """
    apps = apps_named((name or "").split())
    if len(apps) != 1:
        raise typer.BadParameter(f"this command takes one app, not {len(apps)}")
    (app,) = apps
    if listener is None:
        return app
    if listener not in app.listeners:
        known = ", ".join(sorted(app.listeners)) or "none"
        raise typer.BadParameter(f"{app.name} has no listener {listener!r}; it has: {known}")
    return app.listeners[listener]


def of_listener(name: str | None, listener: str | None) -> str | None:
    """Return how a command that has no `--listener` names an app, or this listener of it."""
    from streamkit.cli.loading import with_attribute

    if listener is None:
        return name
    return f"{with_attribute(name or settings().app or '')}.{listener}"


_MEANT = {"extra_forbidden": "no such setting; see [tool.streamkit] in pyproject.toml"}
"""Our words for errors of pydantic, by its name of the error."""


def settings(**given: Any) -> Settings:
    """Read the settings; arguments win over the environment and pyproject.toml.

    Raises:
        BadParameter: a setting is unknown or not valid, or the file is not valid TOML.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = [
            ": ".join((*map(str, part["loc"]), _MEANT.get(part["type"], part["msg"])))
            for part in error.errors()
        ]
        text = "; ".join(wrong).replace("Value error, ", "")
        raise typer.BadParameter(f"settings: {text}") from None
    except TOMLDecodeError as error:
        raise typer.BadParameter(f"pyproject.toml is not TOML: {error}") from None


def set_up_logs(chosen: Settings, level: str, *, besides: Sequence[str] = ()) -> None:
    """Configure logging for this process; `besides` are events that are logged at any level."""
    from streamkit.observe.logs import configure

    try:
        configure(chosen.log_format, level, besides=besides)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def exit_with(code: ExitCode) -> NoReturn:
    """End the command with this exit code."""
    raise typer.Exit(int(code))
