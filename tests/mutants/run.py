"""Run the tests against each mutant: `python -m tests.mutants.run [NAME…] [--jobs 2]`.

Every mutant gets a copy of the package and the tests in a scratch folder. The test that it names
runs first, then the selections of tests below until one fails; that one has caught it. A selection
that fails without any bug, too, catches nothing. A run that takes too long counts as caught, and
says so: a bug that makes the code go round in circles is noticed in any run of the tests.

Verdicts are kept in `.mutants.json`, so that a run that was stopped goes on where it was: one
counts until the mutant, its module or its test changes. `--again` forgets them.

Whether the tests pass without a bug is looked at first, unless `make test` has shown it of the very
same sources.

Exit code 1 if a mutant survives, or does not apply.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.passed import LONG, have_passed

ROOT = Path(__file__).parents[2]
COPIED = (
    "streamkit",
    "tests",
    "handlers",
    "docs",
    "deploy",
    "Makefile",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
LIMIT_SECONDS = 240
KEPT = ROOT / ".mutants.json"

_CRASHES = "tests/simulation/test_crashes.py::"
_FAULTS = "tests/simulation/test_fleet_seeds.py::"
_SEEDS = "tests/simulation/test_fleet_seeds.py::"

SELECTIONS: dict[str, tuple[str, ...]] = {
    "unit": (
        "tests/unit/test_commit.py",
        "tests/unit/test_fold.py",
        "tests/unit/test_planning.py",
        "tests/unit/test_lineage.py",
        "tests/unit/test_app.py",
        "tests/unit/test_reader.py",
        "tests/unit/test_breaker.py",
        "tests/unit/test_losses.py",
    ),
    "listeners": (
        "tests/unit/test_shared_reads.py",
        "tests/unit/fleet/test_coordinator.py",
        "tests/simulation/test_listeners.py",
    ),
    "leases": ("tests/unit/test_leases.py", "tests/unit/fleet"),
    "redrive": (
        "tests/unit/test_parked_head.py",
        "tests/unit/test_automatic_retries.py",
        "tests/unit/test_failures.py",
        "tests/unit/test_retries_by_hand.py",
    ),
    "protocol": ("tests/simulation/test_protocol.py",),
    "gaps": ("tests/simulation/test_mutant_gaps.py",),
    "small": (
        "tests/simulation/test_table_shapes.py",
        "tests/simulation/test_members.py",
        "tests/simulation/test_rollouts.py",
    ),
    "rebuilds": (
        "tests/simulation/test_ledger_rows.py",
        "tests/simulation/test_rebuild.py",
        "tests/simulation/test_starts.py",
    ),
    "watchdogs": ("tests/simulation/test_watchdogs.py",),
    "lambda": (
        "tests/unit/test_lambda_events.py",
        "tests/unit/test_lambda_filters.py",
        "tests/simulation/test_lambda_late.py",
        "tests/simulation/test_lambda_time.py",
        "tests/simulation/test_lambda_queues.py",
        "tests/simulation/test_lambda_holds.py",
        "tests/simulation/test_lambda_anew.py",
        "tests/simulation/test_lambda_builds.py",
        "tests/simulation/test_lambda_operations.py",
        "tests/simulation/test_lambda.py",
    ),
    "moves": (
        "tests/unit/test_kcl_leases.py",
        "tests/simulation/test_kcl_import.py",
        "tests/simulation/test_moving_rivals.py",
        "tests/simulation/test_moving.py",
    ),
    "migrations": (
        "tests/unit/migrate/test_view.py",
        "tests/simulation/test_migration_rows.py",
        "tests/simulation/test_migration_adversary.py",
        "tests/simulation/test_migration_freezes.py",
        "tests/simulation/test_migrations.py",
    ),
    "telemetry": (
        "tests/unit/test_traces.py",
        "tests/unit/test_metrics.py",
        "tests/unit/test_otel.py",
        "tests/unit/test_status_page.py",
        "tests/simulation/test_telemetry.py",
        "tests/simulation/test_waiting.py",
    ),
    "adversary": ("tests/simulation/test_adversary.py",),
    "idle": ("tests/simulation/test_idle.py",),
    "failures": ("tests/simulation/test_failures.py",),
    "losses": ("tests/simulation/test_losses.py", "tests/simulation/test_rewind.py"),
    "crashes": (
        f"{_CRASHES}test_a_run_without_crashes_equals_one_pass_in_order",
        f"{_CRASHES}test_a_worker_killed_at_any_call_leaves_what_one_pass_would[1-after-0.4]",
    ),
    "faults": (f"{_FAULTS}test_no_seed_breaks_an_invariant_and_together_they_meet_every_trouble",),
    "fan_outs": ("tests/simulation/test_fan_out_adversary.py", "tests/simulation/test_sending.py"),
    "mirrors": ("tests/simulation/test_derive.py", "tests/simulation/test_mirror_rows.py"),
    "fleet": ("tests/simulation/test_fleet.py",),
    "seeds": (f"{_SEEDS}test_no_seed_breaks_an_invariant_and_together_they_meet_every_trouble",),
}
"""What runs against a mutant, the fastest first."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: which test has failed, None if none has."""

    caught_by: str | None
    seconds: float


def copy(source: Path, folder: Path) -> None:
    """Copy everything that the tests need."""
    ignored = shutil.ignore_patterns("__pycache__", "mutants", "test_mutants.py")
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, ignore=ignored)
        else:
            shutil.copy(source / name, folder / name)


def _failures(folder: Path, tests: Sequence[str], options: Sequence[str]) -> list[str]:
    """Run tests in a folder and return those that fail, without their parameters.

    Raises:
        RuntimeError: the run was killed, or ended otherwise without saying which test failed.
        subprocess.TimeoutExpired: it took too long.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "--tb=no"]
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "COLUMNS": "300",
    }
    done = subprocess.run(
        [*command, *options, *tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS * len(tests),
        check=False,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 and not failed:
        raise RuntimeError(f"{tests[0]} ended with code {done.returncode} and no failing test")
    return failed


def first_failure(folder: Path, tests: Sequence[str]) -> str | None:
    """Run tests in a folder and return the one that fails first, if one does."""
    paths = [path for path in tests if (folder / path.partition("::")[0]).exists()]
    if not paths:
        return None
    try:
        failed = _failures(folder, paths, ["-x"])
    except subprocess.TimeoutExpired:
        return f"{paths[0]}: no end within {LIMIT_SECONDS * len(paths)} s"
    return next(iter(failed), None)


class Runner:
    """Runs mutants of the code as it was when the runner was made, whatever is edited since."""

    def __init__(self, scratch: Path, selections: Sequence[str]) -> None:
        self._scratch = scratch
        self._selections = selections
        self._original = scratch / "original"
        self._failing: dict[tuple[str, ...], str | None] = {}
        self._lock = Lock()
        copy(ROOT, self._original)

    def look(self, mutants: Sequence[Mutant], jobs: int) -> None:
        """Find out which of the tests that mutants name fail without a bug, in one run.

        After a green `make test` none of its tests does.
        """
        named = sorted({mutant.test for mutant in mutants if mutant.test})
        if have_passed():
            self._failing |= dict.fromkeys(((test,) for test in named), None)
            named = [test for test in named if test.startswith(LONG)]
        if not named:
            return
        options = ["-n", str(jobs), "--dist", "worksteal"]
        failed = set(_failures(self._original, named, options))
        failing = {test for test in named if test.partition("[")[0] in failed}
        self._failing |= {(test,): test if test in failing else None for test in named}
        print(f"{len(named)} tests run without a bug: {len(failing)} fail", flush=True)

    def check(self, mutant: Mutant) -> str | None:
        """Say why a mutant does not apply; None if it does."""
        try:
            mutant.applied(self._original / "streamkit")
        except ValueError as error:
            return str(error)
        return None

    def run(self, mutant: Mutant) -> Verdict:
        """Run the selections against a mutant until one fails."""
        began, caught = time.monotonic(), None
        folder = self._scratch / mutant.name
        copy(self._original, folder)
        text = mutant.applied(self._original / "streamkit")
        (folder / "streamkit" / mutant.file).write_text(text)
        for tests in ((mutant.test,), *(SELECTIONS[name] for name in self._selections)):
            caught = first_failure(folder, tests) if all(tests) else None
            if caught is None:
                continue
            anyway = self._fails_anyway(tests)
            if anyway is None:
                break
            print(f"  {tests[0]} fails without a mutant, too: {anyway}", flush=True)
            caught = None
        shutil.rmtree(folder)
        return Verdict(caught, time.monotonic() - began)

    def _fails_anyway(self, tests: tuple[str, ...]) -> str | None:
        with self._lock:
            if tests not in self._failing:
                self._failing[tests] = first_failure(self._original, tests)
            return self._failing[tests]


class Kept:
    """The verdicts of runs before, as far as they still count."""

    def __init__(self, *, again: bool) -> None:
        self._caught: dict[str, list[str]] = {}
        self._lock = Lock()
        if KEPT.exists() and not again:
            self._caught = json.loads(KEPT.read_text())

    def caught_by(self, mutant: Mutant) -> str | None:
        """Return the test that has caught a mutant, if neither of them has changed since."""
        digest, test = self._caught.get(mutant.name, ("", ""))
        return test if digest == self._digest(mutant) else None

    def keep(self, mutant: Mutant, verdict: Verdict) -> None:
        """Keep what a run has found; a mutant that survives is run again."""
        if verdict.caught_by is not None:
            with self._lock:
                self._caught[mutant.name] = [self._digest(mutant), verdict.caught_by]
                KEPT.write_text(json.dumps(self._caught, indent=0))

    def _digest(self, mutant: Mutant) -> str:
        file = ROOT / mutant.test.partition("::")[0]
        test = file.read_text() if file.is_file() else ""
        return hashlib.sha256(f"{mutant.applied()}\0{test}".encode()).hexdigest()


def report(mutant: Mutant, verdict: Verdict) -> None:
    """Print one row of the table."""
    row = f"({mutant.row})" if mutant.row else ""
    caught = verdict.caught_by or "SURVIVED"
    place, _, test = caught.rpartition("::")
    text = f"{Path(place).name}::{test}" if place else caught
    print(f"{mutant.name:36} {row:10} {verdict.seconds:4.0f} s  {text}", flush=True)


def main() -> int:
    """Run the mutants named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all without it")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--only", nargs="+", choices=SELECTIONS, help="only these selections")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [m for m in MUTANTS if not arguments.names or m.name in arguments.names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        runner = Runner(Path(scratch), arguments.only or list(SELECTIONS))
        broken = [reason for reason in map(runner.check, chosen) if reason is not None]
        if broken:
            print("\n".join(("these do not apply:", *broken)))
            return 1
        bad, kept = 0, Kept(again=arguments.again)
        todo = [mutant for mutant in chosen if kept.caught_by(mutant) is None]
        print(f"{len(chosen) - len(todo)} of {len(chosen)} were caught before", flush=True)
        if todo:
            runner.look(todo, arguments.jobs)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for mutant, verdict in zip(todo, pool.map(runner.run, todo), strict=True):
                report(mutant, verdict)
                kept.keep(mutant, verdict)
                bad += verdict.caught_by is None
    print(f"{len(chosen) - bad} of {len(chosen)} mutants caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
