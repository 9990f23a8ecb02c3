"""What is tried again with an item, what is written down of it, and what is not about it."""

from types import SimpleNamespace

import pytest

from streamkit import ConfigurationError
from streamkit.errors import LeaseLost, Unavailable
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.sending.attempts import ItemAttempts
from streamkit.migrate.sending.calls import DONE
from streamkit.progress.verdicts import Invalid
from streamkit.testing.loop import run_virtually

INVALID, CHANGED = Invalid((), "ValidationException"), "it has changed"


class Calls:
    """Reserves nothing."""

    def reserved(self):
        return self

    async def __aenter__(self):
        pass

    async def __aexit__(self, *_):
        pass


def tried(*outcomes):
    """Return the counts, and the kinds of errors that were written down."""
    noted, left = [], list(outcomes)

    async def attempt(_seen):
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def note(key, kind, what, **about):
        noted.append(kind)
        return Tally()

    failed = SimpleNamespace(note=note)
    tally = run_virtually(lambda: ItemAttempts(Calls(), failed).persist({}, attempt))
    return tally.changed, noted


def test_an_item_is_invalid_only_if_it_is_so_twice_in_a_row():
    assert tried(INVALID, INVALID, DONE) == (0, ["invalid"])
    assert tried(INVALID, DONE) == (1, [])
    assert tried(INVALID, CHANGED, INVALID, DONE) == (1, []), "it may have been another item's"


@pytest.mark.parametrize("error", [Unavailable("slow"), LeaseLost("gone"), ConfigurationError("")])
def test_what_is_not_about_an_item_is_raised(error):
    with pytest.raises(type(error)):
        tried(error)


def test_what_the_users_function_raises_is_written_down():
    assert tried(ValueError("x")) == (0, ["transform"])
