"""What scripts conclude of a migration: nothing is fine that was not done, or not looked at."""

import re
from contextlib import aclosing
from dataclasses import replace

import pytest

from streamkit.cli.migration_found import describe_verified
from streamkit.cli.migration_run import _looks, exit_code_of, overruled
from streamkit.migrate.book.state import State
from streamkit.migrate.operate.progress import Progress
from streamkit.migrate.verify.findings import Verified
from streamkit.progress.operation import AuditEntry
from streamkit.testing.loop import run_virtually


def then(state, *lines, **facts):
    """Return a state later on, with a line in the audit for each minute."""
    for line in lines:
        state = state.noted(AuditEntry(state.updated + 60, "bob", line))
    return replace(state, **facts)


BEGUN = then(State("1"), "begin", phase="capturing")
SWITCHING = then(State("1"), "begin", "scanning", "ready", "switch", phase="switching")
CONTRACTING = then(SWITCHING, "soaking", "contract", phase="contracting")
UNDOING = then(SWITCHING, "soaking", "rollback", phase="returning", direction="back")


@pytest.mark.parametrize(
    ("asked", "before", "after", "code"),
    [
        ("switch", SWITCHING, then(SWITCHING, "soaking", phase="soaking"), 0),
        ("switch", SWITCHING, then(CONTRACTING, "closing", phase="closing"), 0),
        ("switch", SWITCHING, replace(UNDOING, phase="rolled back"), 0),  # it had switched
        ("switch", SWITCHING, then(SWITCHING, "rollback", phase="rolled back"), 7),
        ("switch", SWITCHING, then(SWITCHING, "rollback", "begin --again", phase="ready"), 7),
        ("switch", SWITCHING, replace(UNDOING, paused=True), 8),
        ("contract", CONTRACTING, then(CONTRACTING, "rollback", phase="rolled back"), 7),
        ("contract", CONTRACTING, then(CONTRACTING, "not contracted", phase="soaking"), 7),
        ("apply", BEGUN, then(BEGUN, "scanning", "ready", phase="ready"), 0),
        ("apply", BEGUN, then(BEGUN, "rollback", "rolled back", phase="rolled back"), 7),
        ("apply", *[then(BEGUN, "rollback", "rolled back", phase="rolled back")] * 2, 7),
        ("rollback", UNDOING, then(UNDOING, "rolled back", phase="rolled back"), 0),
        ("rollback", UNDOING, then(UNDOING, "unturning", phase="blocked"), 7),
        ("", BEGUN, then(BEGUN, "rollback", "rolled back", phase="rolled back"), 0),  # join
    ],
)
def test_a_command_that_did_not_come_to_what_it_was_asked_for_does_not_exit_with_0(
    asked, before, after, code
):
    assert exit_code_of(after, before, asked) == code


def test_a_command_that_another_one_overruled_names_it_and_who_gave_it():
    back = replace(UNDOING, phase="rolled back")
    assert re.search("rolled back, because bob gave .*`rollback`.*history", overruled(back, BEGUN))
    assert not overruled(then(SWITCHING, "soaking", phase="soaking"), SWITCHING)
    assert not overruled(then(UNDOING, "unturning"), UNDOING)


RIGHT = Verified("1", "done", 1.0, 9, 9, (), (), waived=0, repaired=0, orphans=None)


@pytest.mark.parametrize(
    ("facts", "ok", "last"),
    [
        ({}, True, "every item is as it should be"),
        ({"sampled": 0.5}, True, "every item that was read is as it should be"),
        ({"waived": 2}, True, "every other item is as it should be"),
        ({"failed": 1}, False, "1 items have failed; see `streamkit migrate errors list`"),
        ({"compared": False}, True, "nothing was written at old keys since"),
    ],
    ids=str,
)
def test_a_verification_calls_right_only_what_it_has_looked_at(facts, ok, last, capsys):
    found = replace(RIGHT, **facts)
    assert found.ok == ok
    describe_verified(found)
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"phase": "soaking"}, "copies without a source are not looked for once new items count"),
        ({"sampled": 0.5}, "copies without a source are not looked for in a sample"),
        ({}, "not all copies were checked for a missing source"),
    ],
    ids=str,
)
def test_a_verification_says_why_copies_were_not_checked(facts, said, capsys):
    describe_verified(replace(RIGHT, orphans=False, **facts))
    assert said in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("every", "asked"), [(2.0, 3), (10.0, 11)])
def test_the_stream_is_asked_every_ten_seconds_however_often_the_progress_is_shown(every, asked):
    looks = []

    class Reader:
        async def read(self, migration, *, lag):
            looks.append(lag)
            facts = ("in_place", "scanning", "run", "forward", "")
            return Progress(migration, *facts, lag=float(sum(looks)) if lag else None)

    async def shown():
        async with aclosing(_looks(Reader(), "0001", every)) as found:
            return [(await anext(found)).lag for _ in range(11)]

    lags = run_virtually(shown)
    assert sum(looks) == asked
    assert (lags[0], lags[-1]) == (1.0, float(asked)), (
        "between two questions the last answer counts"
    )
