"""A sample of the latest archived images is compared with the table."""

import pytest

from streamkit.operate.past import archive_sample
from streamkit.operate.past.archives import verify_archive
from streamkit.progress.clock import CorrectedClock
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, Note, app_of, put


@pytest.fixture
def harness(harness_of):
    return harness_of(app_of(MemoryArchive()), shards=2, settings=SELDOM)


def verified(harness, clock=None, **options):
    clock = clock or harness.world.clock
    return harness.operate(lambda aws: verify_archive(harness.app, aws, clock=clock, **options))


def lived(harness):
    put(harness, *range(40))
    harness.settle()
    harness.roll()
    harness.delete(Note.key(number=3))
    harness.settle()
    harness.advance("26h")
    put(harness, 50)


def test_a_table_that_its_archive_follows_has_no_differences(harness):
    lived(harness)
    found = verified(harness, sample=20)
    assert (found.sampled, found.different, found.whole) == (20, [], True)


def test_a_sample_that_is_larger_than_the_table_is_all_of_it(harness):
    lived(harness)
    notes, copies, removed = 41, 41, 1
    assert verified(harness, sample=500).sampled <= notes + copies + removed
    assert verified(harness, sample=500).sampled >= notes + removed


def test_without_a_sample_nothing_is_compared(harness):
    lived(harness)
    assert verified(harness).sampled == 0


@pytest.mark.parametrize("show_keys", [False, True])
def test_an_item_that_differs_is_named_by_its_key_only_on_request(harness, monkeypatch, show_keys):
    lived(harness)
    items = archive_sample.fetch_by_ref

    async def altered(*arguments):
        found = await items(*arguments)
        for ref, item in found.items():
            if ref.pk[1] == "NOTE#7":
                found[ref] = {**item, "number": {"N": "8"}}
        return found

    monkeypatch.setattr(archive_sample, "fetch_by_ref", altered)
    found = verified(harness, sample=500, show_keys=show_keys)
    assert not found.whole
    (name,) = found.different
    assert (name == "NOTE#7 NOTE#7") is show_keys
    assert ("NOTE" in str(found.to_dict())) is show_keys


@pytest.mark.parametrize("ahead", [0.0, 60.0])
def test_an_item_that_changes_while_it_is_compared_is_no_difference(harness, monkeypatch, ahead):
    """Whatever the time is on the machine."""
    lived(harness)
    items, written = archive_sample.fetch_by_ref, []

    async def late(*arguments):
        if not written:
            written.append(1)
            key = {"S": "NOTE#7"}
            item = {"PK": key, "SK": key, "number": {"N": "7"}, "more": {"S": "x"}}
            await harness._aws.dynamodb.put_item(TableName="Notes", Item=item)
        return await items(*arguments)

    monkeypatch.setattr(archive_sample, "fetch_by_ref", late)
    clock = CorrectedClock(harness.world.clock, ahead)
    assert verified(harness, clock, sample=500).different == []
