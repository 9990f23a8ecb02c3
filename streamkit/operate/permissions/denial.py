"""Compute a policy that keeps the application's own roles from writing streamkit's items.

In: an app, and the account and Region. Out: a policy that denies. No call to AWS is made.
"""

from streamkit.app import App
from streamkit.operate.permissions.access import ALL_CONTROL, WRITES
from streamkit.operate.permissions.document import IamPolicy, Statement, any_key, dynamodb_actions
from streamkit.operate.permissions.place import AccountPlace

_OTHER_WRITES = ("BatchWriteItem", "PartiQLDelete", "PartiQLInsert", "PartiQLUpdate")


def deny_application(app: App, place: AccountPlace | None = None) -> IamPolicy:
    """Compute a policy that keeps the application's own roles from writing streamkit's items."""
    place = place or AccountPlace()
    actions = dynamodb_actions((*WRITES, *_OTHER_WRITES))
    statements = [
        Statement(
            "KeepControlItems",
            actions,
            (place.of_table(app.table, app.table),),
            "only streamkit writes these items",
            any_key(ALL_CONTROL),
            "Deny",
        )
    ]
    if app.control_table not in (None, app.table):
        arn = place.of_table(str(app.control_table), app.table)
        why = "the table is streamkit's own"
        statements.append(Statement("KeepControlTable", actions, (arn,), why, effect="Deny"))
    return IamPolicy(tuple(statements), ("it is for the application's roles, not the workers'",))
