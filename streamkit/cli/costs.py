"""`streamkit cost`: a fleet's cost a month from its settings, and a day from its own counters."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.cli.options import AppArgument, JsonOption, duration, with_settings
from streamkit.cli.printing import print_json, say, seconds, table
from streamkit.cli.running import app_named, settings, with_aws
from streamkit.observe.pricing import PRICED, STORED_DOLLARS, CostEstimate, estimate

_DAY = 86_400

if TYPE_CHECKING:
    from streamkit.aws import Aws
    from streamkit.operate.spending import Spending


SinceOption = Annotated[
    float | None,
    typer.Option(
        "--since",
        metavar="DURATION",
        parser=duration,
        help="Extrapolate from this long ago on, such as 1h; workers remember what they had"
        " counted about 5 minutes, an hour and a day ago.",
    ),
]


@with_settings
def cost(
    app: AppArgument = None,
    *,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Estimate for this many workers; without it, for as many as run now.",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", min=1, help="Estimate for this many open shards, without an app or a table."
        ),
    ] = None,
    changes: Annotated[
        float,
        typer.Option(
            "--changes",
            min=0.0,
            help="Estimate for this many changes a second in all, each with one effect.",
        ),
    ] = 0.0,
    since: SinceOption = None,
    json: JsonOption = False,
    **given: Any,
) -> None:
    """Print what an app's fleet costs.

    A month is estimated, and a day is extrapolated from what the workers have counted. The estimate
    follows from --preset and all other settings of a worker; what handlers write and read comes on
    top. The counts are the units that all calls of the running workers have used since they began,
    including what handlers write and read, for the app and for each listener. They are extrapolated
    to a day, with an error within which 95 of 100 such days would be, if the rest of the day is
    like the sample.
    """
    chosen = settings(**given)
    counted: Sequence[Spending] = ()
    if shards is not None:
        found = estimate(chosen, shards=shards, workers=workers or 1, changes=changes)
    else:
        from streamkit.operate.spending import read_estimate, read_spending

        loaded = app_named(app)

        async def read(aws: "Aws") -> "tuple[CostEstimate, tuple[Spending, ...]]":
            expected = await read_estimate(loaded, aws, chosen, workers=workers, changes=changes)
            return expected, await read_spending(loaded, aws, since=since)

        found, counted = with_aws(read)
    if json:
        print_json(_fields(found) | {"counted": [one.to_dict() for one in counted]})
    else:
        _describe(found, chosen.preset)
        _describe_counted(counted, found)


def _describe(found: CostEstimate, preset: str) -> None:
    say(f"{found.workers} workers, {found.shards} open shards, preset {preset}; $ a month")
    say()
    rows = [
        (
            one.what,
            one.per,
            f"{one.units:,.0f} {one.kind}",
            f"{one.dollars_each:,.3f}",
            str(one.count),
            f"{one.dollars:,.2f}",
        )
        for one in found.costs
    ]
    table(("what", "per", "units an hour", "$ each", "of them", "$"), rows)
    say()
    for per in ("worker", "shard", "fleet"):
        say(f"one {per}: ${found.each(per):,.3f}")
    say(f"in all: ${found.dollars:,.2f}, less ${found.free:,.2f} if the account's free tier")
    say("of 2.5 million stream reads a month is not used up otherwise")
    say(f"Prices: {PRICED}. What handlers write and read comes on top.")
    if any(one.kind == "put" for one in found.costs):
        say(f"So does what the archive keeps: ${STORED_DOLLARS} for each GB and month.")


def _describe_counted(counted: "Sequence[Spending]", found: CostEstimate) -> None:
    if not any(one.workers for one in counted):
        return
    say()
    say(f"A day, as the workers have counted; the estimate is ${found.dollars_a_day:,.2f}")
    longest = max(one.seconds for one in counted)
    unknown = ": a day has hours that it does not know" if longest < _DAY else ""
    say(f"It is extrapolated from {seconds(longest)}{unknown}")
    kinds = ("write", "read", "stream")
    rows = [
        (
            one.consumer,
            str(one.workers),
            seconds(one.seconds),
            *(f"{one.units[kind]:,.0f}" for kind in kinds),
            f"{one.dollars:,.3f}",
            "not known" if one.error is None else f"±{one.error:.0%}",
        )
        for one in counted
    ]
    heads = ("consumer", "workers", "counted for", *kinds, "$ a day", "error")
    table(heads, rows, cut=("consumer",))


def _fields(found: CostEstimate) -> dict[str, Any]:
    costs = [{**asdict(one), "dollars": one.dollars} for one in found.costs]
    each = {f"{per}_dollars": found.each(per) for per in ("worker", "shard", "fleet")}
    return {
        **asdict(found),
        "costs": costs,
        **each,
        "dollars": found.dollars,
        "dollars_a_day": found.dollars_a_day,
        "free_dollars": found.free,
        "prices": PRICED,
    }
