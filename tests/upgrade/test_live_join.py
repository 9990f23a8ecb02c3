"""A version that knows no live join does not run a consumer that is half joined."""

import pytest

from streamkit import Add, Inserted
from streamkit.operate.moves.taking_over import take_over
from streamkit.testing.world import Process
from tests.upgrade import things
from tests.upgrade.changeover import Changeover
from tests.upgrade.versions import VERSIONS


def apart():
    """The app of both versions, with a handler that has a start of its own."""
    app = things.counting()

    @app.on(start="2020-01-01")
    def seen(change: Inserted[things.Thing]) -> Add[things.Note]:
        return Add(things.Note.key(name=f"seen {change.new.name}"), times=1)

    return app


def begin(harness):
    async def begun():
        async with harness.world.clients(Process("command")) as aws:
            await anext(take_over(apart(), aws, "seen", clock=harness.world.clock))

    harness._run(begun())


def before(harness):
    """Let this version run the app with the handler apart, and then the one before."""
    harness.apps["new"] = harness.app = apart()
    harness.put(things.Thing(name="a"))
    harness.settle()
    harness.stop()
    harness.now = "old"


REFUSAL = VERSIONS["old"].part("ConfigurationError")


def test_an_older_version_does_not_begin_while_an_app_takes_a_handler_over():
    """It would commit without the handler for a shard on which the app has taken it over."""
    with Changeover(things, "counting", "new") as harness:
        before(harness)
        begin(harness)
        with pytest.raises(REFUSAL, match="takes a handler over"):
            harness.settle()
        harness.worker.drop()
        harness.now = "new"
        harness.put(things.Thing(name="b"))
        harness.settle()
        assert harness.get(things.Note.key(name="seen a")).times == 1
        assert harness.get(things.Note.key(name="seen b")).times == 1


def test_an_older_version_that_runs_does_not_go_on_while_an_app_takes_a_handler_over():
    with Changeover(things, "counting", "new") as harness:
        before(harness)
        harness.settle()
        begin(harness)
        harness.advance("5m")
        with pytest.raises(REFUSAL, match="takes a handler over"):
            harness.worker.drop()
