"""How far a cursor is behind, as the stream says."""

from types import SimpleNamespace

import pytest

from streamkit.fleet import lag
from streamkit.progress.control import Cursor
from streamkit.testing.loop import VirtualClock, run_virtually

EPOCH = 1_800_000_000.0


class Reader:
    """Reads the pages that it is given, and then none; each record is when it was made."""

    def __init__(self, pages, *, ends=False):
        self.pages, self.ends, self.wait, self.apart = list(pages), ends, 1.0, ""

    @property
    def ended(self):
        return self.ends and not self.pages

    async def read(self):
        if not self.pages:
            return None
        made = self.pages.pop(0)
        return SimpleNamespace(records=[SimpleNamespace(created_at=EPOCH + at) for at in made])


def has_read(monkeypatch, reader, wants=lambda _: True):
    monkeypatch.setattr(lag, "ShardReader", lambda *_: reader)

    async def ask():
        clock, moment = VirtualClock(), EPOCH + 10
        return await lag.has_read(None, "arn", Cursor("shard"), wants, clock, moment)

    return run_virtually(ask)


def test_a_shard_that_no_page_came_of_is_not_called_read(monkeypatch):
    assert not has_read(monkeypatch, Reader([]))


@pytest.mark.parametrize(("made", "read"), [(9, False), (10, False), (11, True)])
def test_what_was_made_after_the_moment_may_be_unread(made, read, monkeypatch):
    assert has_read(monkeypatch, Reader([[made]])) is read


def test_what_nobody_waits_for_may_be_unread(monkeypatch):
    reader = Reader([[1, 2], [], [], [], [], []])
    assert has_read(monkeypatch, reader, wants=lambda _: False)


def test_pages_of_what_nobody_waits_for_do_not_end_the_search(monkeypatch):
    reader = Reader([[1]] * 8 + [[2]])
    assert not has_read(monkeypatch, reader, wants=lambda record: record.created_at == EPOCH + 2)


def test_a_shard_that_is_read_to_its_end_is_read(monkeypatch):
    assert has_read(monkeypatch, Reader([[1]], ends=True), wants=lambda _: False)
