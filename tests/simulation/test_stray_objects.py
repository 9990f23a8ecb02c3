"""An object under a name that its shard's chain does not lead to is named, and is no loss of its own."""

import pytest

from streamkit.errors import RetentionLost
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.rewind import Despite, RewindRefused
from tests.simulation.test_archive import rewound
from tests.simulation.test_damaged_objects import harness, lived  # noqa: F401 - a fixture
from tests.simulation.test_restore import restored, there

GARBAGE = b"not an object of an archive"


def stray(harness, name, where, body):  # noqa: F811
    """Put an object beside another one, under an invented position; return its name."""
    archive = harness.archive()
    folder, _, file = name.rpartition("/")
    number = int(file.removesuffix(".jsonl.gz"))
    invented = {"behind": number + 7, "beyond": 10**39, "before": 7}[where]
    there = f"{folder}/{invented:040}.jsonl.gz"
    archive.objects[there] = archive.objects[name] if body == "copy" else GARBAGE
    return there


@pytest.mark.parametrize("body", ["copy", "garbage"])
@pytest.mark.parametrize("where", ["before", "behind", "beyond"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["streamed", "trimmed"])
def test_commands_name_a_stray_object_and_go_on_without_it_on_request(
    harness,  # noqa: F811
    where,
    body,
    trimmed,
):
    moment, was, name = lived(harness, "first", finished=True, trimmed=trimmed)
    found = stray(harness, name, where, body)
    check = harness.operate(lambda aws: verify_archive(harness.app, aws))
    assert [found in gap.text for gap in check.gaps].count(True) >= 1
    with pytest.raises(RetentionLost, match=found):
        restored(harness, moment)
    done = restored(harness, moment, allow_loss=True)
    assert there(harness) == was
    assert any(found in text for text in done.losses)
    yesterday = moment - 26 * 3600
    with pytest.raises(RewindRefused, match=found):
        rewound(harness, yesterday)
    rewound(harness, yesterday, despite=Despite(loss=True))
