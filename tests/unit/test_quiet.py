"""When a shard counts as quiet: so many pages without a change since the worker wrote anything."""

import pytest

from streamkit.stream.decode import Page
from streamkit.worker.quiet import QuietPages, WriteCount
from tests.pending import record


def page(records=0, size=0):
    return Page(tuple(record(number, "a") for number in range(records)), size=size)


def test_pages_without_a_change_count_until_one_has_some():
    quiet = QuietPages(WriteCount())
    for traffic, number in ((0, 1), (0, 2), (1, 0), (0, 1)):
        quiet.note(page(records=1), traffic)  # streamkit's own records are no changes
        assert quiet.number == number


@pytest.mark.parametrize(
    ("given", "number"),
    [(page(99, 500_000), 1), (page(100), 0), (page(1, 500_001), 0)],
)
def test_a_large_page_of_streamkits_own_records_is_likely_followed_by_another(given, number):
    quiet = QuietPages(WriteCount())
    quiet.note(given, 0)
    assert quiet.number == number


def test_what_was_written_may_come_back_so_that_all_shards_count_anew():
    writes = WriteCount()
    one, other = QuietPages(writes), QuietPages(writes)
    for quiet in (one, other):
        quiet.note(page(), 0)
        quiet.note(page(), 0)
    writes.note()
    assert (one.number, other.number) == (0, 0)
    one.note(page(), 0)
    assert (one.number, other.number) == (1, 0)


def test_a_shard_that_waits_for_something_else_is_as_quiet_as_one_without_changes():
    writes = WriteCount()
    quiet = QuietPages(writes)
    quiet.note_unread()
    quiet.note_unread()
    assert quiet.number == 2
    writes.note()
    quiet.note_unread()
    assert quiet.number == 1
