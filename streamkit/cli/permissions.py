"""`streamkit iam`: a host's least-privilege policy, computed from the app's declarations."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.cli.options import AppArgument

if TYPE_CHECKING:
    from streamkit.operate.permissions.document import Policy


class Host(Enum):
    """The host that a policy is for."""

    WORKER = "worker"
    LAMBDA = "lambda"
    MIGRATE = "migrate"
    OPERATOR = "operator"


FunctionOption = Annotated[
    str, typer.Option("--function", help="the Lambda function's name, for its log group")
]
LeasesOption = Annotated[
    str | None, typer.Option("--leases", help="the KCL's lease table, for `consumers import-kcl`")
]


def iam(  # noqa: PLR0913 - each is an option
    app: AppArgument = None,
    *,
    host: Annotated[
        Host, typer.Option("--host", help="operator: all other commands, redrives included")
    ] = Host.WORKER,
    account: Annotated[str | None, typer.Option("--account", help="twelve digits")] = None,
    region: Annotated[str | None, typer.Option("--region", help="any, without it")] = None,
    table_arn: Annotated[
        str | None, typer.Option("--table-arn", help="says account, Region and table at once")
    ] = None,
    function: FunctionOption = "*",
    deny_application: Annotated[
        bool,
        typer.Option(
            "--deny-application", help="print what keeps the application off streamkit's items"
        ),
    ] = False,
    no_leading_keys: Annotated[
        bool,
        typer.Option("--no-leading-keys", help="do not limit keys; where these are binary"),
    ] = False,
    leases: LeasesOption = None,
    why: Annotated[
        bool, typer.Option("--why", help="print the reason for each statement instead")
    ] = False,
) -> None:
    """Print the IAM policy that a host of an app needs, as JSON.

    AWS is not asked. What handlers write follows from their annotations, what they read from the
    names that their code uses. What could not be computed is said on stderr.
    """
    from streamkit.cli.printing import print_json
    from streamkit.cli.running import app_named
    from streamkit.operate.permissions.hosts import deny_application as denial
    from streamkit.operate.permissions.hosts import policy_for
    from streamkit.operate.permissions.place import Place

    loaded = app_named(app)
    place = Place.of(account=account, region=region, table_arn=table_arn)
    if deny_application:
        policy = denial(loaded, place)
    else:
        policy = policy_for(
            loaded,
            host.value,
            place,
            function=function,
            leading_keys=not no_leading_keys,
            leases=leases,
        )
    if why:
        _describe(policy)
    else:
        print_json(policy.to_dict())
    for note in policy.notes:
        typer.echo(f"note: {note}", err=True)


def _describe(policy: "Policy") -> None:
    from streamkit.cli.printing import table

    rows = [
        (one.sid, ", ".join(action.partition(":")[2] for action in one.actions), one.why)
        for one in policy.statements
    ]
    table(("statement", "actions", "why"), rows)
