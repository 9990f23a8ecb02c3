"""What a verification has found, as it is stored: page by page, and as a report."""

import random
from contextlib import nullcontext

import pytest

from streamkit.errors import LeaseLost
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.verify import verification_book
from streamkit.migrate.verify.differences import ItemDifference
from streamkit.migrate.verify.findings import Findings, Verified
from streamkit.migrate.verify.verification_book import VerificationBook, VerificationState
from tests.unit.migrate.test_migration_order import at_table


def difference(name, **fields):
    said = {"kind": "differs", "text": "it differs", "key": {"PK": {"S": name}}, "image": "x"}
    return ItemDifference(name, **said | fields)


def page(*names, **numbers):
    return Findings(different=[difference(name) for name in names], **numbers)


def in_book(test):
    """Return what a test of one verification's items returns, which has begun."""

    async def begun(site):
        store = (await open_book(site.app, site.aws)).store
        about = (store, "0001", nullcontext, site.world.clock, random.Random(1))
        book = VerificationBook(*about)
        now = await book.step(
            VerificationState(), number=1, stage="reading", total=2, chosen=(0, 1)
        )
        return await test(book, now)

    return at_table(begun)


async def add(book, segment, found):
    for action in await book.adding(segment, found):
        await book.store.write(action)


def test_what_the_pages_of_all_segments_have_found_is_found_once():
    async def test(book, now):
        first, second = book.scan(now, 0, 0).names
        beside = book.scan(now, 0, 1).names[0]
        await add(book, first, page("a", looked_at=4, matching=3, beyond=2, missing=1))
        await add(book, first, page("b", "c", looked_at=1))
        await add(book, second, page(looked_at=5))
        await add(book, beside, page("d", looked_at=7))
        (found,) = await book.found(now)
        numbers = found.looked_at, found.matching, found.beyond, found.missing
        return numbers, sorted(one.id for one in found.different)

    assert in_book(test) == ((17, 3, 2, 1), ["a", "b", "c", "d"])


def test_each_pass_has_findings_of_its_own():
    async def test(book, now):
        now = await book.step(now, rounds=1)
        for turn in range(2):
            (name, _) = book.scan(now, turn, 0).names
            await add(book, name, page(looked_at=turn + 1))
        return [one.looked_at for one in await book.found(now)]

    assert in_book(test) == [1, 2]


def test_what_was_found_is_not_read_under_a_state_that_is_over():
    async def test(book, now):
        await book.step(now, rounds=1)
        with pytest.raises(LeaseLost, match="continued by another process"):
            await book.found(now)

    in_book(test)


FOUND = Verified(
    *("0001", "done", 1.0, 10, 9),
    different=(difference("a", key={}, image=""), difference("b", key={}, image="")),
    unsettled=(difference("c", key={}, image="", kind="behind"),),
    waived=1,
    repaired=2,
    orphans=True,
    beyond=3,
)


def test_a_report_is_read_as_it_was_written_until_the_next_verification(monkeypatch):
    monkeypatch.setattr(verification_book, "_ITEM_BYTES", 80)

    async def test(book, now):
        await book.report(now, FOUND, "over")
        over = await book.read()
        assert over.parts > 1
        assert await book.reported(over) == FOUND
        later = await book.step(over, book.forgetting(over), number=2, report=None, parts=0)
        assert await book.reported(over) is None
        assert await book.reported(later) is None
        return await book.store.items([("found", "0001.1", str(n)) for n in range(over.parts)])

    assert in_book(test) == []


def test_the_lines_of_one_item_are_no_longer_than_it_takes(monkeypatch):
    monkeypatch.setattr(verification_book, "_ITEM_BYTES", 10)
    assert verification_book._packed(["aaaa", "bbbb", "cccc"]) == ["aaaa\nbbbb", "cccc"]
    assert verification_book._packed(["a" * 20, "b"]) == ["a" * 20, "b"]
    assert verification_book._packed(["aaaaa", "bbbbb"]) == ["aaaaa", "bbbbb"]


def test_nothing_of_a_verification_stays_but_its_state():
    async def test(book, now):
        now = await book.step(now, rounds=1)
        for turn in range(2):
            for table in range(2):
                (name, _) = book.scan(now, turn, table).names
                await add(book, name, page("a"))
        names = [
            n for turn in range(2) for table in range(2) for n in book.scan(now, turn, table).names
        ]
        await book.clear(now)
        left = [("found", name) for name in names] + [("found", name, "0") for name in names]
        return await book.store.items(left)

    assert in_book(test) == []
