"""The target of a restore: whether a table may take one, and the mark of the run that writes it."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamkit.aws import Aws
from streamkit.core.tables import AppTables
from streamkit.errors import ConfigurationError
from streamkit.fleet.members import new_worker_name
from streamkit.migrate.run.exports import Export
from streamkit.model.conditions import Attr, absent
from streamkit.model.schema import TableSchema
from streamkit.operate.past.past import PastChanges
from streamkit.operate.restore.base_items import open_base
from streamkit.progress.actions import Action, ItemRef, Verb, item_ref
from streamkit.progress.clock import utc
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import Fenced
from streamkit.progress.operation import Refusal

TABLE = "table"
"""The base that is the app's table as it is now."""
_MARK = "restore"
Tell = Callable[[str], None]


class RestoreRefused(Refusal):
    """A table cannot be restored in this way; nothing was changed. `reasons` are for people."""


@dataclass(frozen=True)
class RestoreWish:
    """What is to be restored: the moment `at` in epoch seconds, and the base.

    `base` is empty for none, `TABLE`, or the folder of an export to S3, as it was downloaded.
    `units` are the most write units a second into another table, None for no limit.
    """

    at: float
    base: str = ""
    allow_loss: bool = False
    tell: Tell = lambda _: None
    units: float | None = None


async def check_wish(
    past: PastChanges, source: TableSchema, target: TableSchema, wanted: RestoreWish
) -> Export | None:
    """Refuse a restore whose result would be wrong; return the export that is its base, if any.

    Raises:
        RestoreRefused: with the reasons.
    """
    reasons, export = [], None
    keys = [(one.pk, one.pk_type, one.sk, one.sk_type) for one in (source, target)]
    if keys[0] != keys[1]:
        reasons.append(f"{target.name} has other keys than {source.name}")
    if wanted.at > past.clock.time():
        reasons.append(f"{utc(wanted.at).isoformat()} is in the future")
    if wanted.at < past.began and not wanted.allow_loss:
        reasons.append(
            f"the archive begins at {utc(past.began).isoformat()}; what changed before is not known"
        )
    if wanted.base not in ("", TABLE):
        try:
            export = await open_base(Path(wanted.base), source)
        except ConfigurationError as error:
            reasons.append(str(error))
    if export is not None and export.since < past.began:
        reasons.append(f"the export is older than the archive: {utc(export.since).isoformat()}")
    RestoreRefused.raise_for(reasons)
    return export


async def begin_restore(
    aws: Aws, tables: AppTables, target: TableSchema, stream: str, wanted: RestoreWish
) -> Fenced:
    """Mark the target as this run's; continue the same restore if it was stopped.

    A target whose partition key is no string cannot hold a mark. Then it is in the table that holds
    the app's control items, under the target's name.

    Raises:
        RestoreRefused: the target has items, or something else is restored into it.
        LeaseLost: another run was faster.
    """
    inside, what = target.pk_type == "S", f"{stream} at {wanted.at} on {wanted.base}"
    space = ControlSpace.of(target if inside else tables.control, _MARK, stream)
    run, store = new_worker_name(), CursorStore(aws.dynamodb, space)
    names = (_MARK,) if inside else (_MARK, target.name)
    there = await store.item(*names)
    if there is None:
        await _require_empty(aws, target, space.ref(*names))
    elif there["what"]["S"] != what:
        raise RestoreRefused(
            [f"{target.name} holds a part of another restore, of {there['what']['S']}"]
        )
    mark = space.update(*names)
    mark.sets |= {"what": {"S": what}, "run": {"S": run}}
    still = absent if there is None else Attr("run").eq(there["run"]["S"])
    await store.write(mark.only_if(still))
    fenced = Fenced(store, Attr("run").eq(run), random.Random(), names, (target,))
    if there is None or "empty" not in there:
        # Another run may have ended between the look and the mark, and the table be in use.
        try:
            await _require_empty(aws, target, space.ref(*names))
        except RestoreRefused:
            await fenced.apply([Action(space.ref(*names), Verb.DELETE)])
            raise
        found = space.update(*names)
        found.sets["empty"] = {"BOOL": True}
        await fenced.apply([found])
    return fenced


async def _require_empty(aws: Aws, target: TableSchema, mark: ItemRef) -> None:
    found = await aws.dynamodb.scan(TableName=target.name, ConsistentRead=True, Limit=2)
    if any(item_ref(target, item) != mark for item in found["Items"]):
        raise RestoreRefused(
            [f"{target.name} is not empty, or was just restored; name an empty table"]
        )
