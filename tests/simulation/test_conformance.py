"""Every handler kind in every host: the same traffic comes to the same table.

A host is a name and what makes it; `make conformance SEEDS=50` plays more seeds. The third host is
a migration job, as processes and as invocations on Lambda: it rewrites, derives and counts the
items of all handlers while these run in one of the other hosts, and leaves the table as it was.
"""

import pytest

from streamkit.aws_lambda import high_water_marks
from streamkit.core.queued_keys import QueuedKeys
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.effects import Guard
from streamkit.migrate.items import writes
from streamkit.model.conditions import absent, any_of, present
from streamkit.model.origin import WriteOrigin
from streamkit.testing import Different, Trouble, trial
from streamkit.testing.crew import TrialCrew
from streamkit.testing.hosts import Functions
from tests.seeds import seeds
from tests.simulation.conformance import LAST, Market, add_migrations, audited_wrong, make_app
from tests.simulation.jobs import jobs

HOSTS = {"worker": TrialCrew, "lambda": Functions}
JOBS = {"job": jobs(TrialCrew, 600.0, LAST), "job on lambda": jobs(Functions, 60.0, LAST)}
SEEDS = seeds()
TROUBLE = Trouble(crash=0.05, split=0.03, roll=0.02, pause=3.0, sinks=0.02)


def end_of(host, seed, acts=60):
    """Play the traffic, compare the end with a recomputation, and return what is in the table."""
    app = make_app(tables=["Elsewhere"] if host in JOBS else [])
    named = {"seed": seed, "acts": acts, "trouble": TROUBLE, "host": (HOSTS | JOBS)[host]}
    if host in JOBS:
        add_migrations(app)
        named["others"] = {"Elsewhere": TableShape()}
    ran = trial(app, Market(app), **named)
    # A few seeds in a hundred lack one of them.
    met = [bool(ran.met[name]) for name in ("crash", "split", "roll")]
    assert sum(met) >= (2 if seed else 3), host
    if host in JOBS:
        assert ran.met["migrated"] == len(app.migrations)
        assert audited_wrong(ran.final) == []
    return ran


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_comes_to_the_same_table_in_every_host(seed):
    first, *others = (end_of(host, seed) for host in (*HOSTS, *JOBS))
    # Not every seed has poison.
    assert seed or all(comparison.compared for comparison in first.comparisons)
    for entity in entities_of(make_app()):
        for other in others:
            assert not first.final.compare(entity, other.final[entity]).differences


def holds_are_not_read(monkeypatch):
    """A worker that takes a shard does not know what is parked: later changes overtake that."""

    async def nothing(*_):
        return None

    monkeypatch.setattr(QueuedKeys, "load", nothing)


def marks_are_not_asked(monkeypatch):
    """A function does again what comes again."""
    monkeypatch.setattr(high_water_marks.HighWaterMarks, "is_done", lambda *_: False)
    anyhow = any_of(absent, present)
    monkeypatch.setattr(high_water_marks, "_before", lambda *_: anyhow)
    monkeypatch.setattr(high_water_marks, "_BARE", Guard(anyhow))


def jobs_write_as_handlers_do(monkeypatch):
    """A migration's writes do not say whose they are, and handlers take them for changes."""

    def text(writer, **_):
        return WriteOrigin("handler").text(writer, "planted")

    monkeypatch.setattr(writes, "origin_text", text)


@pytest.mark.parametrize(
    ("host", "plant"),
    [
        ("worker", holds_are_not_read),
        ("lambda", marks_are_not_asked),
        ("job", jobs_write_as_handlers_do),
        ("job on lambda", jobs_write_as_handlers_do),
    ],
)
def test_a_bug_that_is_planted_in_a_host_is_found(host, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(Different):
        end_of(host, 0, 40 if host in JOBS else 80)
