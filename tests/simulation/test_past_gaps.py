"""What the archive lacks is named where the past is read, and only where the stream lacks it too."""

import pytest

from streamkit.errors import RetentionLost
from streamkit.operate.restore_target import TABLE
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, app_of, links
from tests.simulation.test_restore import TARGET, now, restored, there, write


@pytest.fixture
def harness(harness_of):
    app = app_of(MemoryArchive(), on_loss="resume")
    return harness_of(app, shards=1, settings=SELDOM, others=[TARGET])


def begun(harness):
    """Let one note be archived; return the moment after it, with what was there."""
    write(harness, 1, "one")
    harness.settle()
    harness.advance("1h")
    return now(harness), there(harness, "Notes")


def test_a_hole_up_to_the_end_of_a_shard_is_a_loss_although_its_age_is_not_known(harness):
    moment, was = begun(harness)
    harness.stop()
    harness.advance("1h")
    write(harness, 1, "never archived")
    harness.roll()
    harness.advance("50h")
    write(harness, 3, "later")
    harness.settle()
    harness.advance("2h")
    assert [link.until for link in links(harness.archive()) if link.kind == "hole"] == [0.0, 0.0]
    with pytest.raises(RetentionLost, match="trimmed before they were archived"):
        restored(harness, moment, TABLE)
    done = restored(harness, moment, TABLE, allow_loss=True)
    assert len(done.losses) == 2
    assert there(harness).keys() == was.keys()
