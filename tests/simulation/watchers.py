"""Deals, and who is told of them: what the tests of fan-outs share."""

from typing import ClassVar

from streamkit import (
    App,
    Entity,
    Index,
    Inserted,
    PoisonChange,
    Policy,
    Put,
    Query,
    absent,
)


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL#{deal}"):
    deal: str
    brand: str
    title: str = "t"


class Watch(Entity, pk="WATCH#{brand}", sk="USER#{user}"):
    brand: str
    user: str

    everyone: ClassVar = Index("GSI1", pk="{user}")


class Note(Entity, pk="NOTES#{user}", sk="NOTE#{deal}"):
    user: str
    deal: str
    text: str = ""
    read: bool = False


class Seen(Entity, pk="SEEN#{deal}", sk="SEEN#{deal}"):
    deal: str


def watchers(change: Inserted[Deal]) -> Query[Watch]:
    return Watch.query(brand=change.new.brand)


def make_app(
    *,
    poison=(),
    failing=(),
    rate=None,
    inline=50,
    audience=watchers,
    otherwise="omit",
    **policy,
):
    policy = Policy(**{"retry_limit": 3, **policy})
    app = App("deals", table="Deals", entities=[Note, Watch], policy=policy)

    @app.fan_out(audience, rate=rate, inline=inline)
    def notify(change: Inserted[Deal], to: Watch) -> Put[Note]:
        if to.user in poison:
            raise PoisonChange("not to this one")
        if to.user in failing:
            raise ValueError("not now")
        note = Note(user=to.user, deal=change.new.deal, text="new")
        return Put(note).only_if(absent, otherwise=otherwise) if otherwise else Put(note)

    @app.on
    def see(change: Inserted[Deal]) -> Put[Seen]:
        return Put(Seen(deal=change.new.deal))

    return app


def users(count):
    return [f"u{number:04}" for number in range(count)]


def watch(harness, count, brand="acme"):
    harness.put(*(Watch(brand=brand, user=user) for user in users(count)))


def notes(harness, deal="1"):
    items = harness.world.items("Deals")
    return sorted(item["user"]["S"] for item in items if item["SK"]["S"] == f"NOTE#{deal}")
