"""Which handlers may run again for some old changes, in a table that has gone on since.

In: a handler. Out: why it may not, or the handler as a replay runs it: what cannot be seen in its
declaration is seen when it runs, and refused then. A handler that only says what is to be (`Put`,
`Set`, `Delete`, `AddToSet`, `RemoveFromSet`) may run for a change whose item is still as that
change left it. What adds up is counted again by a rebuild. Results that follow from the old image,
too, are wrong for an item that came back to an earlier image, unless an attribute that never
repeats is compared as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from streamkit.changes import CHANGE_TYPES, Change, Kind
from streamkit.core.handler import AUDIENCE, DEFER, Handler
from streamkit.effects import Add, Effect, Result, as_effects
from streamkit.errors import PoisonChange
from streamkit.operate.rewind import counts_twice, effects_named
from streamkit.progress.own_effects import Accumulate
from streamkit.table import Table

LOOKS_BACK = "it looks at the old image: give --revision ATTRIBUTE, or --allow it"


NoteLarge = Callable[[str, Change[Any]], None]
"""A function that is told of a handler and a change with recipients for several transactions."""


class LooksBack(PoisonChange):
    """A handler looked at the old image of a change, which a replay cannot vouch for."""


class AddsUp(PoisonChange):
    """A handler returned an effect that counts once more when it is done twice."""


class AudienceTooLarge(PoisonChange):
    """A change has more recipients than fit in one transaction."""


def not_replayed(handler: Handler, *, allowed: bool, revision: bool, writes: bool) -> Iterator[str]:
    """Yield why a handler must not run again for some old changes.

    Args:
        handler: the handler.
        allowed: a person says that it may, in all that its declaration does not show.
        revision: an attribute that never repeats is compared.
        writes: its effects are written.
    """
    named = () if handler.is_aggregate else effects_named(handler) or ()
    if handler.is_aggregate:
        rebuild = f"streamkit aggregate rebuild MODULE:APP {handler.name}"
        yield f"an aggregate would count every change once more; use `{rebuild}`"
    elif Add in named or Accumulate in named:
        yield (
            "it may return Add, which would add once more; make it an aggregate, which"
            " `streamkit aggregate rebuild` counts again"
        )
    elif handler.shadow and writes:
        yield "it is in shadow mode: use --shadow or --dry-run"
    elif not handler.converges and not allowed:
        yield from _only_allowed(handler)
        if handler.when is not None and handler.kinds != {Kind.INSERTED} and not revision:
            yield (
                f"its when= ({handler.when.text}) looks at the old image, and an item may have come"
                " back to an earlier one: --revision ATTRIBUTE, or --allow if that does not happen"
            )


def _only_allowed(handler: Handler) -> Iterator[str]:
    own = {name: need for name, need in handler.needs.items() if name != AUDIENCE}
    if handler.sends:
        yield "it may return a Send, which would be delivered again"
    elif Table in own.values():
        yield "it reads the table, and may build on what it wrote the first time"
    elif handler.delivery == "at_least_once" or own:
        yield "it may do more than it returns: " + ", ".join(sorted(own) or ["at_least_once"])
    elif handler.is_async and handler.broadcast is None:
        yield "it is async, so it may do I/O of its own"
    elif handler.broadcast is None:
        reason = counts_twice(replace(handler, shadow=False))
        yield from () if reason is None else (reason,)


def replayed(handler: Handler, *, looks_back: bool, large: NoteLarge | None = None) -> Handler:
    """Return a handler as a replay runs it: once, with its own retries, and never parked.

    Args:
        handler: the handler.
        looks_back: it may look at the old image.
        large: is told of a change whose recipients do not fit in one transaction, which then has no
            effects; without it, such a change fails.
    """
    function: Any = handler.run

    async def run_later(change: Change[Any], **tools: Any) -> Result:
        seen = _watched(change, looks_back=looks_back)
        return judged(await function(seen, **tools), seen)

    def run_now(change: Change[Any], **tools: Any) -> Result:
        seen = _watched(change, looks_back=looks_back)
        return judged(function(seen, **tools), seen)

    def judged(result: Any, seen: Change[Any]) -> Result:
        if result is DEFER and large is not None:
            large(handler.name, seen)
            return None
        return _judged(result, seen)

    policy = replace(handler.policy, on_failure="park", breaker=False)
    run = run_later if handler.is_async else run_now
    changed = replace(handler, run=run, policy=policy, shadow=False)
    # With recipients it would be moved to a parked queue where it is refused often.
    return changed if large is None else replace(changed, broadcast=None)


def _judged(result: Any, change: Change[Any]) -> Result:
    if getattr(change, "looked", None):
        raise LooksBack(LOOKS_BACK)  # its code has caught the first one
    if result is DEFER:
        raise AudienceTooLarge("its recipients do not fit in one transaction")
    effects: tuple[Effect, ...] = as_effects(result)
    if any(isinstance(effect, Add | Accumulate) for effect in effects):
        raise AddsUp("it returned an effect that adds up")
    return effects


def _watched(change: Change[Any], *, looks_back: bool) -> Change[Any]:
    """Return a change like another one, whose old image raises as soon as it is looked at."""
    if looks_back or change.old is None:
        return change
    watched = object.__new__(_WATCHED[type(change)])
    for name in Change.__dataclass_fields__:
        if name != "old":
            object.__setattr__(watched, name, getattr(change, name))
    object.__setattr__(watched, "looked", [])
    return watched


def _watching(kind: type[Change[Any]]) -> type[Change[Any]]:
    def old(change: Any) -> None:
        change.looked.append(1)
        raise LooksBack(LOOKS_BACK)

    return type(kind.__name__, (kind,), {"__slots__": ("looked",), "old": property(old)})


_WATCHED = {kind: _watching(kind) for kind in CHANGE_TYPES.values()}
