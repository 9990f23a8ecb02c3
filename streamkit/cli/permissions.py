"""`streamkit iam`: a host's least-privilege policy, computed from the app's declarations."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamkit.cli.options import AppArgument
from streamkit.cli.printing import print_json, table, tell
from streamkit.cli.running import app_named

if TYPE_CHECKING:
    from streamkit.operate.permissions.document import IamPolicy


HostOption = Annotated[
    Literal["worker", "lambda", "migrate", "operator"],
    typer.Option(
        "--host", help="The host that needs the policy; operator runs all other commands."
    ),
]
DenyOption = Annotated[
    bool,
    typer.Option(
        "--deny-application",
        help="Print the policy that denies the application streamkit's items.",
    ),
]
AnyKeyOption = Annotated[
    bool,
    typer.Option(
        "--no-leading-keys", help="Do not limit partition keys; needed where they are binary."
    ),
]
TableArnOption = Annotated[
    str | None,
    typer.Option(
        "--table-arn", help="The table's ARN, which tells account, Region and table at once."
    ),
]
FunctionOption = Annotated[
    str, typer.Option("--function", help="The Lambda function's name, for its log group.")
]
LeasesOption = Annotated[
    str | None,
    typer.Option("--leases", help="The KCL's lease table, if `consumers import-kcl` reads it."),
]

KeysOption = Annotated[
    str,
    typer.Option(
        "--keys-from",
        metavar="s3://BUCKET/KEY|index:NAME",
        help="What `migrate --keys-from` reads: a list of keys or an export in S3, or an index.",
    ),
]


def iam(  # noqa: PLR0913 - each is an option
    app: AppArgument = None,
    *,
    host: HostOption = "worker",
    account: Annotated[
        str | None,
        typer.Option("--account", help="The account, twelve digits; without it, any account."),
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="The Region; without it, any Region.")
    ] = None,
    table_arn: TableArnOption = None,
    function: FunctionOption = "*",
    deny_application: DenyOption = False,
    no_leading_keys: AnyKeyOption = False,
    leases: LeasesOption = None,
    keys_from: KeysOption = "",
    why: Annotated[
        bool,
        typer.Option("--why", help="Print the reason for each statement instead of the policy."),
    ] = False,
) -> None:
    """Print the IAM policy that a host of an app needs, as JSON.

    It does not call AWS. What handlers write follows from their annotations; what they read follows
    from the names that their code uses. What could not be computed is printed on stderr.
    """
    from streamkit.operate.permissions.denial import deny_application as denial
    from streamkit.operate.permissions.hosts import policy_for
    from streamkit.operate.permissions.place import AccountPlace

    loaded = app_named(app)
    place = AccountPlace.of(account=account, region=region, table_arn=table_arn)
    if deny_application:
        policy = denial(loaded, place)
    else:
        policy = policy_for(
            loaded,
            host,
            place,
            function=function,
            leading_keys=not no_leading_keys,
            leases=leases,
            keys_from=keys_from,
        )
    if why:
        _describe(policy)
    else:
        print_json(policy.to_dict())
    for note in policy.notes:
        tell(f"note: {note}")


def _describe(policy: "IamPolicy") -> None:
    rows = [
        (one.sid, ", ".join(action.partition(":")[2] for action in one.actions), one.why)
        for one in policy.statements
    ]
    table(("statement", "actions", "why"), rows)
