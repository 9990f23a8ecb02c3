"""Every kind of handler, while a fleet goes over to a new streamkit, runs beside it, and goes back.

What one version leaves in the middle, the other goes on with: fan-outs under way, parked changes
and queued keys, high-water marks, cursors of workers that were killed in a commit, moves between
hosts, migrations of every mode.
"""

from functools import partial

import pytest

from streamkit import App
from streamkit.core.table_shape import TableShape
from streamkit.testing import Different, Trouble, trial
from tests.simulation import conformance
from tests.simulation.test_conformance import holds_are_not_read, marks_are_not_asked
from tests.upgrade.hosts import HandedToLambda, HandedToWorkers, SharedJobs, journey

# What is sent fails with an error of the version under test, which the other does not know.
TROUBLE = Trouble(crash=0.05, split=0.03, roll=0.02, pause=15.0, sinks=0.0)


def end_of(host, app=None, seed=3, **named):
    """Play the traffic, and compare the end with a recomputation; return what was met."""
    app = app or conformance.make_app()
    ran = trial(app, conformance.Market(app), seed=seed, trouble=TROUBLE, host=host, **named)
    assert all(ran.met[name] for name in ("crash", "split", "roll"))
    assert ran.met["new committed"] > 5
    assert ran.met["old committed"] > 5
    for item in ran.final.items["Market"]:
        if item.get("_sk_kind") == {"S": "consumer"}:
            assert len(item["_sk_known"]["L"]) == 1, "what is the same begins no generation"
    return ran


@pytest.mark.parametrize(
    ("kind", "legs"),
    [
        ("crew", ("old", "new+old", "new")),
        ("crew", ("old", "new", "old")),
        ("crew", ("old", "new+old", "old")),
        ("functions", ("old", "new")),
        ("functions", ("old", "new", "old")),
    ],
)
def test_handlers_come_to_the_same_table_whichever_version_runs(kind, legs):
    ran = end_of(journey(conformance, kind, *legs), acts=80)
    assert all(comparison.compared for comparison in ran.comparisons)


@pytest.mark.parametrize("killed", ["old", "new"])
@pytest.mark.parametrize("host", [HandedToWorkers, HandedToLambda])
def test_a_move_between_hosts_goes_on_in_the_other_version(host, killed):
    ran = end_of(partial(host, kill=1, module=conformance, killed=killed), acts=80)
    assert ran.met["mover killed"]


@pytest.mark.parametrize("kind", ["crew", "functions"])
def test_migrations_of_every_mode_are_shared_by_jobs_of_both_versions(kind):
    app = conformance.make_app(tables=["Elsewhere"])
    conformance.add_migrations(app)
    legs = ("new+old",) if kind == "crew" else ("old", "new")
    base = journey(conformance, kind, *legs)
    host = partial(SharedJobs, base, 20.0, conformance.LAST, conformance)
    ran = end_of(host, app, seed=7, acts=25, others={"Elsewhere": TableShape()})
    assert ran.met["migrated"] == len(app.migrations)
    assert conformance.audited_wrong(ran.final) == []


@pytest.mark.parametrize("kind", ["crew", "functions"])
def test_the_same_changes_take_no_more_units_than_before(kind):
    units = {}
    for name in ("old", "new"):
        app, host = conformance.make_app(), journey(conformance, kind, name)
        quiet = Trouble(crash=0, split=0, roll=0, slow=0, broken=0, sinks=0, pause=1.0)
        ran = trial(app, conformance.Market(app), acts=60, trouble=quiet, host=host)
        units[name] = ran.met[f"{name} units"]
    assert 1000 < units["new"] <= 1.02 * units["old"]  # batches of functions fall as they may


def fingerprints_differ(monkeypatch):
    """An upgrade takes every app for another one."""
    monkeypatch.setattr(App, "fingerprint", lambda _: "planted")


@pytest.mark.parametrize(
    ("kind", "plant", "error", "seed"),
    [
        ("crew", holds_are_not_read, Different, 1),
        ("crew", fingerprints_differ, AssertionError, 3),
        ("functions", marks_are_not_asked, Different, 3),
    ],
)
def test_a_new_version_that_overlooks_what_the_old_one_has_left_is_found(
    kind, plant, error, seed, monkeypatch
):
    plant(monkeypatch)
    with pytest.raises(error):
        end_of(journey(conformance, kind, "old", "new"), acts=80, seed=seed)
