"""The commands that need no account of AWS: `local`, `new`, `dev` and `demo`."""

from pathlib import Path
from typing import Annotated

import typer

from streamkit.cli.options import AppArgument
from streamkit.cli.running import run as run_async
from streamkit.cli.running import settings
from streamkit.settings import PORT_MAX


def local(
    *,
    host: Annotated[
        str, typer.Option(envvar="STREAMKIT_LOCAL_HOST", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=PORT_MAX,
            envvar="STREAMKIT_LOCAL_PORT",
            help="Listen on this port; 0 lets the system choose.",
        ),
    ] = 8000,
    shards: Annotated[int, typer.Option(min=1, help="Give a new stream this many shards.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Make ids and sequence numbers repeatable.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep all tables in this folder.")
    ] = None,
) -> None:
    """Serve DynamoDB and its streams on this machine.

    It works with any AWS SDK, and prints the environment variables to set. Without --data it keeps
    nothing when it ends.
    """
    from streamkit.cli.engine import serve_engine

    run_async(lambda: serve_engine(host=host, port=port, shards=shards, seed=seed, data=data))


def new(
    name: Annotated[str, typer.Argument(help="The name of the project, its package and its app.")],
) -> None:
    """Write a project that runs, with tests and table definitions.

    It has entities, a handler, and a Makefile with the usual commands.
    """
    from streamkit.cli.new import describe_project, write_project

    here = Path.cwd()
    describe_project(name, write_project(name, here), here)


def dev(
    app: AppArgument = None,
    *,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=PORT_MAX, help="Serve the tables on this port; 0 lets the system choose."
        ),
    ] = 8000,
    page: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve the status page at this address.")
    ] = "127.0.0.1:8080",
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Keep all tables in this folder.")
    ] = Path(".streamkit"),
) -> None:
    """Run tables, a worker and the status page on this machine.

    They run until Ctrl-C. The worker starts again when a file below this folder changes that the
    app imports, or a migration. Missing tables are made as App(shape=...) says; without it, their
    keys are PK and SK. When a handler raises, the traceback of your code is shown.
    """
    from streamkit.cli.dev import Development

    name = app or settings().app
    if not name:
        raise typer.BadParameter("name the app as MODULE:APP (or set STREAMKIT_APP)")
    run_async(lambda: Development(name, page, Path.cwd(), data).run(port))


def demo(
    name: Annotated[str, typer.Argument(help="The example: a folder under handlers/.")] = "deals",
    *,
    writes: Annotated[int | None, typer.Option(min=1, help="Play about this many writes.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Play the run of this seed; another seed is another run.")
    ] = None,
) -> None:
    """Play an example on the local engine.

    Meanwhile workers are killed and shards split. At the end the table is compared with a
    recomputation. Exits with 1 if anything differs.
    """
    from streamkit.cli.loading import import_demo

    if not name.isidentifier():
        raise typer.BadParameter(f"{name!r} is not the name of a folder under handlers/")
    module = import_demo(name)
    given = {"writes": writes, "seed": seed}
    options = {option: value for option, value in given.items() if value is not None}
    result = module.main(**options)
    raise typer.Exit(int(result or 0))
