"""An error is removed as it was read, so that what another process notes meanwhile is not lost."""

import pytest

from streamkit.migrate.book.errors import ErrorBook, Reason
from streamkit.migrate.book.state_book import open_book
from streamkit.testing.world import Process
from tests.unit.migrate.test_migration_order import at_table

KEY = {"PK": {"S": "ORDER#1"}, "SK": {"S": "ORDER"}}


class Interrupted(Process):
    """Lets another process act before one of its calls, counted from `arm` on."""

    def arm(self, calls, act):
        self.left, self.act = calls, act

    async def intercept(self, call, apply):
        self.left = getattr(self, "left", 0) - 1
        if self.left == 0:
            await self.act()
        return await super().intercept(call, apply)


async def book_in(site, aws):
    return ErrorBook((await open_book(site.app, aws)).store, "0001")


async def noted(book, text, at=1000.0):
    await book.add(KEY, Reason("transform", text), at)
    (error,) = await book.all()
    return error


def test_an_error_that_is_right_is_gone_however_often_it_is_removed_and_may_come_again():
    async def test(site):
        book = await book_in(site, site.aws)
        error = await noted(book, "first")
        removed = await book.remove(error), await book.all(), await book.remove(error)
        return removed, (await noted(book, "again", 2000.0)).since

    assert at_table(test) == ((True, [], True), 2000.0)


def test_a_note_of_the_same_second_is_not_removed_with_the_one_before():
    async def test(site):
        book = await book_in(site, site.aws)
        first = await noted(book, "first")
        await noted(book, "second")
        return await book.remove(first), [error.text for error in await book.all()]

    assert at_table(test) == (False, ["second"])


@pytest.mark.parametrize("calls", range(1, 5))
@pytest.mark.parametrize("sooner", ["noted", "removed"])
def test_what_is_noted_is_listed_whenever_another_process_removes_what_it_read_before(
    sooner, calls
):
    async def test(site):
        process, other = Interrupted("interrupted"), await book_in(site, site.aws)
        async with site.world.clients(process) as aws:
            book = await book_in(site, aws)
            read = await noted(other, "first")
            if sooner == "removed":
                process.arm(calls, lambda: other.add(KEY, Reason("transform", "second"), 1000.0))
                await book.remove(read)
            else:
                process.arm(calls, lambda: other.remove(read))
                await book.add(KEY, Reason("transform", "second"), 1000.0)
        happened = process.left <= 0
        return happened, [error.text for error in await other.all()]

    happened, texts = at_table(test)
    assert not happened or texts == ["second"]


def test_a_removal_that_comes_between_a_note_and_its_first_time_leaves_nothing_behind():
    async def test(site):
        process, other = Interrupted("interrupted"), await book_in(site, site.aws)

        async def removes():
            (error,) = await other.all()
            assert await other.remove(error)

        async with site.world.clients(process) as aws:
            book = await book_in(site, aws)
            process.arm(3, removes)  # the record, its entry, and then the time
            await book.add(KEY, Reason("transform", "first"), 1000.0)
        assert await other.all() == []
        return (await noted(other, "again", 2000.0)).text

    assert at_table(test) == "again"
