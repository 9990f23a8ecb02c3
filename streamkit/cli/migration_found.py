"""The output of the migration commands about items that are wrong: errors and verifications."""

from collections.abc import Sequence

from streamkit.cli.printing import moment, say, table
from streamkit.migrate.book.errors import ErrorGroup, ItemError, groups_of
from streamkit.migrate.book.state import SWITCHED
from streamkit.migrate.verify.findings import Verified
from streamkit.progress.scan.places import place_text

_SHOWN = 50


def describe_errors(errors: Sequence[ItemError], *, details: bool) -> None:
    """Print failed items by their reasons, then each; keys and messages only with `details`."""
    if not errors:
        say("no item has failed")
        return
    heads = ("kind", "what", "where", "items", "waived", "since (UTC)", "such as")
    table(heads, [_group_row(group) for group in groups_of(errors)])
    say()
    shown = ("item", "kind", "phase", "since (UTC)", "when (UTC)", "waived")
    table(
        (*shown, "key", "message")[: 8 if details else 6],
        [
            (*_error_row(one), place_text(one.key), one.detail or one.text)[: 8 if details else 6]
            for one in errors
        ],
        most=_SHOWN,
    )


def _group_row(one: ErrorGroup) -> tuple[str, ...]:
    since = moment(one.since)
    return one.kind, one.text, one.place or "-", str(one.items), str(one.waived), since, one.example


def _error_row(one: ItemError) -> tuple[str, ...]:
    since, at = moment(one.since), moment(one.at)
    return one.id, one.kind, one.phase or "-", since, at, one.waived or "-"


def describe_verified(found: Verified) -> None:
    """Print a verification."""
    share = "" if found.sampled >= 1 else f" of {found.sampled:.1%} of the table"
    say(f"migration {found.migration}, {found.phase}: {found.looked_at} items read{share}")
    gone = f", {found.missing} keys without an item" * bool(found.missing)
    say(f"of them of its entity: {found.matching}{gone}")
    if not found.compared:
        say("the old items are deleted, so nothing is left to which new ones could be compared")
    if found.orphans is False:
        switched = found.phase in (*SWITCHED, "returning")
        when = "once new items count" if switched else "in a sample" if found.sampled < 1 else ""
        text = f"copies without a source are not looked for {when}"
        say(text if when else "not all copies were checked for a missing source")
    for title, ones in (("different", found.different), ("unsettled", found.unsettled)):
        if ones:
            say(f"{title}: {len(ones)} items")
            rows = [(one.id, one.kind, one.text) for one in ones]
            table(("item", "kind", "what"), rows, most=_SHOWN)
    if found.beyond:
        say(f"{found.beyond} more items differed; mend these first, then verify again")
    if found.waived:
        say(f"{found.waived} items differ and were waived: they do not count as right")
    if found.repaired:
        say(f"{found.repaired} items were repaired")
    if found.failed:
        say(f"{found.failed} items have failed; see `streamkit migrate errors list`")
    if found.ok:
        say(_conclusion(found))
    elif found.later:
        say(f"what differs may be the work of migration {found.later}, which came later: verify it")


def _conclusion(found: Verified) -> str:
    """Return what holds where nothing is wrong; what was waived does not count as right."""
    if not found.compared:
        return "nothing was written at old keys since"
    which = "every other item" if found.waived or found.unsettled else "every item"
    return f"{which}{'' if found.sampled >= 1 else ' that was read'} is as it should be"
