"""What the kinds of handlers cost, from the engine's own accounting, and what docs/copies.md says."""

from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, Inserted, Send, Set
from streamkit.testing.chance import repeatable
from tests.pages import PAGES, rows
from tests.simulation.memory import Memory
from tests.simulation.watchers import Deal, make_app, notes, watch

GROWTH = 1.1
"""By how much the measured units may exceed the published ones."""
SHRINKAGE = 0.8
"""And below which part of them they are published wrongly."""

_OVERHEAD = ("#member", "#dir#", "#consumer", "#cursor#")
"""What is read for the fleet, whatever the handlers are."""


class User(Entity, pk="USER#{user}", sk="USER#{user}"):
    user: str
    name: str = "n"


class Member(Entity, pk="SERVER#{server}", sk="USER#{user}"):
    server: str
    user: str
    name: str = ""

    by_user: ClassVar = Index("GSI1", pk="USER#{user}", sk="SERVER#{server}")


class Email(Entity, pk="EMAIL#{email}", sk="EMAIL#{email}"):
    email: str
    user: str


class Costs:
    """The units and calls of a harness's worker, `times` so many, but for what a fleet costs."""

    def __init__(self, harness, times=1):
        self.read = self.write = self.calls = 0
        self._times = times
        harness.world.watchers.append(self._saw)

    def _saw(self, sighting):
        call = sighting.call
        read = call.operation in ("GetItem", "BatchGetItem", "Query", "Scan")
        if not sighting.actor or not (read or call.operation == "TransactWriteItems"):
            return
        if read and any(word in str(call.payload) for word in _OVERHEAD):
            return
        self.calls += self._times
        self.read += self._times * call.units.get("read", 0)
        self.write += self._times * call.units.get("write", 0)


def fan_out_inline(harness_of):
    harness = harness_of(make_app())
    watch(harness, 10)
    harness.settle()
    costs = Costs(harness)
    harness.put(*(Deal(deal=f"d{number}", brand="acme") for number in range(100)))
    harness.settle()
    assert all(len(notes(harness, f"d{number}")) == 10 for number in (0, 99))
    return costs


def fan_out(harness_of):
    harness = harness_of(make_app())
    watch(harness, 1000)
    harness.settle()
    costs = Costs(harness)
    harness.put(Deal(deal="1", brand="acme"))
    harness.settle()
    assert len(notes(harness)) == 1000
    return costs


def mirrored(harness_of):
    app = App("chat", table="Chat")

    @app.mirror(
        copies=lambda user: Member.query(index=Member.by_user, user=user.user),
        source=lambda member: User.key(user=member.user),
    )
    def copy_name(user: User, copy: Member) -> Set[Member]:
        return Set(copy.item_key, name=user.name)

    harness = harness_of(app)
    harness.put(User(user="ann", name="one"))
    return harness


def members(count=250):
    return [Member(server=f"s{number}", user="ann", name="one") for number in range(count)]


def mirror_of_a_rename(harness_of):
    harness = mirrored(harness_of)
    harness.put(*members())
    harness.settle()
    costs = Costs(harness, times=4)
    harness.put(User(user="ann", name="two"))
    harness.settle()
    assert {member.name for member in harness.scan(Member)} == {"two"}
    return costs


def mirror_of_new_copies(harness_of):
    harness = mirrored(harness_of)
    harness.settle()
    costs = Costs(harness, times=4)
    harness.put(*members())
    harness.settle()
    return costs


def derive(harness_of):
    app = App("people", table="People")

    @app.derive
    def email(user: User) -> Email:
        return Email(email=f"{user.user}@x", user=user.user)

    harness = harness_of(app)
    harness.settle()
    costs = Costs(harness)
    harness.put(*(User(user=f"u{number}") for number in range(1000)))
    harness.settle()
    assert len(harness.scan(Email)) == 1000
    return costs


def send(harness_of):
    app, sink = App("people", table="People"), Memory()
    app.sink(sink)

    @app.on
    def told(change: Inserted[User]) -> Send:
        return Send(sink, {"user": change.new.user})

    harness = harness_of(app)
    harness.settle()
    costs = Costs(harness)
    harness.put(*(User(user=f"u{number}") for number in range(1000)))
    harness.settle()
    assert len(sink.got) == 1000
    return costs


KINDS = {
    "fan-out, inline (10 each)": fan_out_inline,
    "fan-out, beside the shard": fan_out,
    "mirror, source changed": mirror_of_a_rename,
    "mirror, copies made": mirror_of_new_copies,
    "derive": derive,
    "Send": send,
}


def page_row(name):
    """Return what the page's table says of a kind: write and read units, and calls."""
    row = next(row for row in rows(PAGES["docs/copies.md"]) if row[0] == name)
    return [float(cell.replace(",", "")) for cell in row[1:]]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_costs_what_the_page_says(harness_of, name):
    with repeatable(1):
        costs = KINDS[name](harness_of)
    found = (costs.write, costs.read, costs.calls)
    print(f"{name}: {costs.write:,.0f} write units, {costs.read:,.0f} read, {costs.calls} calls")
    for measured, published in zip(found, page_row(name), strict=True):
        assert SHRINKAGE * published <= measured <= GROWTH * published + 1
