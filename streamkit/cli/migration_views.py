"""The output of the migration commands: plans and progress; `migration_found` has what is wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamkit.cli.printing import Style, moment, say, seconds, table
from streamkit.migrate.book.limits import errors_text
from streamkit.migrate.book.old_writes import OldWriteRate
from streamkit.migrate.book.state import State
from streamkit.migrate.operate.progress import Progress
from streamkit.migrate.operate.status import Line, parked_text, phase_of
from streamkit.migrate.plan.diffs import Diff
from streamkit.migrate.plan.estimates import Choice, StepCost
from streamkit.migrate.plan.sample_look import MigrationPlan
from streamkit.migrate.run.passing import ATTEMPTS_MAX
from streamkit.migrate.run.sampling import SampleEstimate
from streamkit.observe.pricing import PRICED
from streamkit.progress.clock import SystemClock
from streamkit.progress.scan.scan import LEASE_SECONDS

_REASONS = {
    "limit": "the limit",
    "throttled": "throttling",
    "lag": "the lag of other consumers",
    "index": "the creation of its index",
    "capture": "its own consumer, which has to catch up first",
}
_STYLES: Mapping[str, Style] = {"-": {"fg": "red"}, "+": {"fg": "green"}, " ": {"bold": True}}


# -- plans -----------------------------------------------------------------------------------------


def describe_plan(plan: MigrationPlan) -> None:
    """Print a plan."""
    of = f"the items of {plan.keys_from}" if plan.keys_from else "the table"
    what = f"all of {of}" if plan.sampled >= 1 else f"{plan.sampled:.2%} of {of}"
    say(
        f"migration {plan.migration}, {plan.mode} of {plan.entity};"
        f" {plan.looked_at} items read, {what}"
    )
    say(f"{'keys' if plan.keys_from else 'items in the table':<22} {_count(plan.items)}")
    for name, share in (plan.sources or {plan.entity: plan.matching}).items():
        say(f"of them {name:<14} {_share(share)}")
    say(f"of those to be changed {_share(plan.needing)}")
    if plan.settle:
        say(f"both sides are settled {plan.settle}")
    say()
    heads = ("step", "read units", "write units", "of indexes", "$")
    table(heads, [_row(step) for step in plan.forecast.steps])
    say(f"in all ${_money(plan.forecast.dollars)}, on demand; {PRICED}")
    if plan.forecast.seconds is not None:
        say(f"at this budget it takes at least {seconds(plan.forecast.seconds)}")
    _describe_choices(plan.forecast.choices)
    _describe_pass(plan.forecast.one_pass)
    for one in plan.indexes:
        say(
            f"meanwhile DynamoDB fills index {one.name}: {_count(one.entries)} entries,"
            f" {_count(one.writes)} write units of the index, ${_money(one.dollars)}"
        )
    _describe_problems(plan)
    for diff in plan.diffs:
        _print_diff(diff)


def _row(step: StepCost) -> tuple[str, ...]:
    indexes = [f"{name} {_count(one)}" for name, one in sorted(step.writes.items()) if name]
    writes = (_count(step.writes[""]), ", ".join(indexes) or "-")
    return (step.step, _count(step.reads), *writes, _money(step.dollars))


def _describe_choices(choices: Sequence[Choice]) -> None:
    """Print what each way to the end takes as a whole."""
    if not choices:
        return
    say()
    times = [] if choices[0].seconds is None else ["at least"]
    table(
        ("to the end by", "read units", "write units", "$", *times),
        [
            (one.name, _count(one.reads), _count(one.writes), _money(one.dollars))
            + (() if one.seconds is None else (seconds(one.seconds),))
            for one in choices
        ],
    )
    say("without old code no stubs are left; they are watched until it has written none for 24 h")


def _describe_pass(one: SampleEstimate | None) -> None:
    """Print what each pass reads that is repeated while the application writes."""
    if one is not None:
        say(
            f"one pass of `switch` reads {_count(one)} units, and one of `rollback` about as many;"
            f" while the application writes, a phase takes up to {ATTEMPTS_MAX + 1} passes: choose"
            " an hour with few writes"
        )


def _describe_problems(plan: MigrationPlan) -> None:
    say()
    if not plan.problems:
        say("no problem was found")
    for one in plan.problems:
        items = f", {one.items} items ({one.share:.1%}), such as" if one.items else ""
        say(f"{one.severity}: {one.kind}: {one.text}{items} {', '.join(one.examples)}".rstrip())


def _print_diff(diff: Diff) -> None:
    say()
    say(f"item {diff.item}", bold=True)
    for sign, text in diff.lines:
        say(f"  {sign} {text}", **_STYLES[sign])


# -- progress --------------------------------------------------------------------------------------


def progress_line(now: Progress) -> str:
    """Return the progress as one line."""
    return " | ".join(progress_parts(now))


def progress_parts(now: Progress) -> list[str]:
    """Return the progress, a text for each thing that is to be said of it."""
    parts = [f"{now.migration} {phase_of(now)}"]
    if now.share == 0 and not now.tally.scanned:
        parts.append("its scan has not begun")
    elif now.share is not None:
        parts.append(f"{now.share:.1%} ±{now.share_error:.1%}")
        parts.append(f"segments {now.finished}/{now.segments}")
        parts.append(f"{now.tally.scanned} read, {now.tally.changed} changed")
        parts += [f"{now.tally.missing} keys without an item"] * bool(now.tally.missing)
        parts += [f"{now.items:,.0f} items/s"] * bool(now.items)
        parts += [f"{now.tally.conflicts} tried again"] * bool(now.tally.conflicts)
    parts += [f"only the items of {now.keys_from}"] * bool(now.keys_from)
    parts += [f"settled {now.settle}"] * (now.settle not in ("", "by field"))
    if now.open_errors or now.waived:
        parts.append(f"{now.open_errors} errors, {now.waived} waived")
    parts += filter(None, [parked_text(now)])
    parts += [_units(now)] * bool(now.processes)
    parts += [f"slowed by {_REASONS.get(now.reason, now.reason)}{_behind(now)}"] * bool(now.reason)
    written = "" if now.written is None else f", {now.written:,.3g} items a second"
    if (short := now.short_of) is not None:
        limit = now.max_reads if short == "read" else now.max_writes
        parts.append(
            f"its budget is too small: it uses what it has, {limit:g} {short} units a second, and"
            f" is {seconds(now.lag)} behind what the application writes{written}; raise it with"
            f" `streamkit migrate limit --max-{short[0]}cu`"
        )
    parts += [
        f"{count} of its segments are held by {owner}, which is silent: another process takes them"
        f" when it has seen no write for {LEASE_SECONDS:g} s"
        for owner, count in sorted(now.held.items())
    ]
    if now.lag is not None:
        said = f" behind what the application writes{written}" * bool(written and not short)
        parts.append(f"capture lag {seconds(now.lag)}{said}")
    if now.eta is not None:
        parts.append(f"this scan ends in {seconds(now.eta)} ±{seconds(now.eta_error)}")
    if now.note:
        parts.append(now.note)
    return parts


def _behind(now: Progress) -> str:
    """Return which other consumer slows a migration down, and where to look; empty if none does."""
    if not now.behind:
        return ""
    return f": {now.behind} is minutes behind; `streamkit status` of its app says why"


def limits_of(state: State) -> str:
    """Return the limits of a migration in words."""
    limits = [
        f"{units} {limit:g} a second"
        for units, limit in (("WCU", state.max_writes), ("RCU", state.max_reads))
        if limit is not None
    ]
    if state.max_errors:
        limits.append(f"at most {errors_text(state.max_errors)} errors")
    if state.first:
        limits.append(f"a pause after the first {state.first} items")
    return ", ".join(limits) or "no limit"


def _units(now: Progress) -> str:
    def one(speed: float, limit: float | None) -> str:
        return f"{speed:,.0f}" + ("" if limit is None else f"/{limit:,.0f}")

    text = f"RCU/s {one(now.reads, now.max_reads)}, WCU/s"
    text += f" {one(now.writes.get('', 0.0), now.max_writes)}"
    indexes = [f"{name} {speed:,.0f}" for name, speed in now.writes.items() if name]
    text += f" ({', '.join(indexes)})" if indexes else ""
    return f"{text}, {now.processes} processes"


_COUNTED = {"skipped": "needed nothing", "conflicts": "tried again"}
"""Some counts of a pass, in a reader's words."""


def describe_state(state: State, now: Progress) -> None:
    """Print the state of one migration."""
    for part in progress_parts(now):
        say(part)
    if state.verified:
        seen = ", ".join(f"{n} {name}" for name, n in state.verified.items() if n) or "no item"
        for name, words in _COUNTED.items():
            seen = seen.replace(name, words)
        say(f"last verification: {seen}")
    if state.audit:
        last = state.audit[-1]
        say(f"last: {moment(last.at)} {last.what}, {last.by}")


def old_write_lines(found: Iterable[OldWriteRate]) -> Iterator[str]:
    """Yield a line for each phase in which something was written in the old shape."""
    now = SystemClock().time()
    for one in found:
        hours = " ".join(str(number) for number in one.lately(now))
        yield (
            f"in the old shape while {one.phase}: {one.writes} writes, the last at"
            f" {moment(one.last)}; in the last 6 hours {hours}"
        )


def describe_lines(lines: Sequence[Line]) -> None:
    """Print the migrations that are not done, a line each."""
    for one in lines:
        done = "" if one.share == "-" else f", {one.share} of the scan"
        left = "" if one.left is None else f", about {seconds(one.left)} left"
        errors = f", {one.errors} errors" if one.errors else ""
        note = f"; {one.note}" if one.note else ""
        say(f"migration {one.migration}: {one.phase}{done}{left}{errors}{note}")


def describe_history(state: State) -> None:
    """Print the audit trail."""
    rows = [(moment(one.at), one.by, one.what) for one in state.audit]
    table(("when (UTC)", "by", "what"), rows)  # a note may be long; the last column is not padded


# -- numbers ---------------------------------------------------------------------------------------


def _count(one: SampleEstimate) -> str:
    return f"{one.value:,.0f}" + (f" ±{one.error:,.0f}" if one.error else "")


def _share(one: SampleEstimate) -> str:
    return f"{one.value:.1%}" + (f" ±{one.error:.1%}" if one.error else "")


def _money(one: SampleEstimate) -> str:
    return f"{one.value:,.2f}" + (f" ±{one.error:,.2f}" if one.error >= 0.005 else "")
