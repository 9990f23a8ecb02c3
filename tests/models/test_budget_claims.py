"""The rule for a shared budget holds in every world, the naive ones do not, and the code is ours."""

import pytest

from streamkit.migrate.book.limits import Limit, Share
from streamkit.migrate.sending import sharing
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.sharing import Shares
from streamkit.progress.actions import Action, Verb
from tests.models import budget_claims
from tests.models.budget_claims import CHECKS, NAIVE, Claims, broken
from tests.pending import SPACE


class Call:
    """A call of the table, which reaches it when the world says so."""

    def __init__(self, act):
        self.act = act

    def __await__(self):
        return (yield self.act)


class Code:
    """The code of a process in place of the specification; it is its own clock, and its table."""

    def __init__(self, me):
        self.now, self.space = 0.0, self
        self.shares = Shares(self, "0001", f"host/{me}", self)
        self.rate = Rate(self, Limit(max_writes=1.0), Share(0.0, 0.0))

    def monotonic(self):
        return self.now

    def update(self, *names):
        return Action(SPACE.ref(*names), Verb.UPDATE)

    async def item(self, *_names):
        return await Call(lambda items: None)

    async def write(self, action):
        def act(items):
            for guard, _ in action.guards:
                (name,) = action.removes
                if items.get(name) != guard.condition.get_expression()["values"][1]:
                    return
                del items[name]
            items |= {name: value["S"] for name, value in action.sets.items()}

        return await Call(act)

    def ask(self, now):
        self.now = now
        self.look = self.shares.look()
        return self.look.send(None)

    def answer(self, read, now, items):
        self.now, reply = now, {name: {"S": count} for name, count in read.items()}
        try:
            while True:
                self.look.send(reply)(items)
        except StopIteration as ended:
            self.rate.share = ended.value

    def taking(self, now):
        self.now = now
        return self.rate._limit("write")


def test_the_rule_holds_in_every_world_that_is_looked_at():
    assert broken(Claims) == {}


def test_the_code_holds_in_every_world_that_is_looked_at():
    for name in ("LOOK", "FRESH", "WAIT"):
        assert getattr(sharing, f"{name}_SECONDS") == getattr(budget_claims, name)
    for name in ("RENEW", "LOST", "DEAD"):
        assert getattr(sharing, f"_{name}_SECONDS") == getattr(budget_claims, name)
    assert broken(Code) == {}


@pytest.mark.parametrize("name", NAIVE)
def test_a_rule_that_looks_simpler_breaks(name):
    rule, breaks = NAIVE[name]
    assert next(CHECKS[breaks](rule), None) is not None


def test_a_bug_of_the_code_is_found(monkeypatch):
    monkeypatch.setattr(sharing, "_LOST_SECONDS", 1e9)
    assert next(CHECKS["exceeds"](Code), None) is not None
