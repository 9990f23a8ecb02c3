"""The program behind `make simulate`: many seeds, and for each that fails the smallest plan.

    python -m tests.simulation.simulate --seeds 1000        # 0 to 999
    python -m tests.simulation.simulate --seeds 200-400     # 200 to 399
    python -m tests.simulation.simulate --seed 17           # one seed, with its plan's size

Prints what was met, and exits with 1 if a seed failed or, with `--reach`, if something that the
seeds should meet was not. A run is repeated exactly by the same seed and code; sets of texts have
another order in each process unless `PYTHONHASHSEED` is set, so the program sets it and starts
itself again.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from streamkit.testing.faults import KINDS, LATE_KINDS
from tests.simulation.fleet_plan import draw
from tests.simulation.fleet_run import Outcome, run
from tests.simulation.plan import Plan, shrunk

WANTED = (
    *KINDS,
    *LATE_KINDS,
    "ambiguous_commit",
    "commit_unknown",
    "empty_page",
    "freeze",
    "iterator_expiry",
    "kill",
    "late_child",
    "loss",
    "lost",
    "open_parent",
    "parked",
    "possible_loss",
    "roll",
    "shard_gone",
    "split",
    "steal",
    "stop",
    "trim",
    "two_generations",
)
"""What a share of the seeds must meet, or it has shown less than it says."""
_RUN_SECONDS = 60
"""Of processor time: a run takes two, a long one ten."""
_SHRINK_SECONDS = 90.0


def main() -> int:
    """Run the seeds that the command line names; return the exit code."""
    arguments = parsed()
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        program = [sys.executable, "-m", "tests.simulation.simulate", *sys.argv[1:]]
        sys.stdout.flush()
        os.execve(sys.executable, program, environment)
    seeds = [arguments.seed] if arguments.seed is not None else span(arguments.seeds)
    counts, seconds, failed, started = Counter(), 0.0, 0, time.monotonic()
    for outcome, smallest in outcomes(list(seeds), arguments.jobs, arguments.shrink):
        counts += outcome.counts
        seconds += outcome.seconds
        if outcome.failed:
            failed += 1
            print(told(outcome, smallest), flush=True)
    print(summary(len(seeds), seconds, counts, time.monotonic() - started))
    missing = [name for name in WANTED if not counts[name]] if arguments.reach else []
    if missing:
        print(f"no seed has met: {', '.join(missing)}")
    if failed:
        print(f"{failed} of {len(seeds)} seeds failed")
    return 1 if failed or missing else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate fleets of workers, one seed a run.")
    parser.add_argument("--seeds", default="200", help="how many from 0, or FIRST-LAST")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--shrink", type=int, default=100, help="runs spent on the smallest plan")
    parser.add_argument("--reach", action="store_true", help="fail if something was never met")
    return parser.parse_args()


def span(text: str) -> range:
    """Read `1000` (0 to 999) or `200-400` (200 to 399)."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last)) if dash else range(int(first))


def outcomes(seeds: list[int], jobs: int, runs: int) -> Iterator[tuple[Outcome, Plan | None]]:
    """Run the seeds, in several processes if there are several."""
    if jobs < 2 or len(seeds) < 2:
        yield from map(tried, seeds, repeat(runs))
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(tried, seeds, repeat(runs))


def tried(seed: int, runs: int) -> tuple[Outcome, Plan | None]:
    """Run one seed; return its smallest failing plan if it fails."""
    outcome = timed(seed, draw(seed))
    if not outcome.failed:
        return outcome, None
    print(f"seed {seed} failed: {outcome.violations[0]}", flush=True)
    deadline = time.monotonic() + _SHRINK_SECONDS

    def fails(plan: Plan) -> bool:
        if time.monotonic() > deadline:
            return False
        return timed(seed, plan).invariant == outcome.invariant

    return outcome, shrunk(outcome.plan, fails, runs=runs)


def timed(seed: int, plan: Plan) -> Outcome:
    """Run a plan, but not for ever: a loop in which virtual time stands still has no other end."""

    def give_up(_signal: int, _frame: object) -> None:
        raise RuntimeError(f"still running after {_RUN_SECONDS} s of processor time")

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, _RUN_SECONDS)
    try:
        return run(seed, plan)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def told(outcome: Outcome, smallest: Plan | None) -> str:
    """Say what failed, how to see it again, and how little it takes."""
    lines = [f"seed {outcome.seed} failed:"]
    lines += [f"  {violation}" for violation in outcome.violations]
    lines.append(f"again: make simulate SEED={outcome.seed}")
    lines.append(f"   or: .venv/bin/python -m tests.simulation.simulate --seed {outcome.seed}")
    if smallest is not None:
        size, whole = len(smallest.events), len(outcome.plan.events)
        lines.append(f"smallest plan, {size} of {whole} events; run({outcome.seed}, plan) fails:")
        lines.append(smallest.literal())
    return "\n".join(lines)


def summary(seeds: int, seconds: float, counts: Counter[str], elapsed: float) -> str:
    """Say how much was simulated."""
    totals = ("call", "change", "commit", "take")
    met = ", ".join(f"{k} {n}" for k, n in sorted(counts.items()) if k not in totals)
    figures = ", ".join(f"{counts[name]} {name}s" for name in totals)
    return f"{seeds} seeds in {elapsed:.0f} s: {seconds / 3600:.1f} virtual hours, {figures}\nmet: {met}"


if __name__ == "__main__":
    sys.exit(main())
