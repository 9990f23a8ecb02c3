"""An app with a handler of each kind, its traffic, and what must follow, replayed in plain Python.

Whatever runs the app, the table must come to this. Each handler's items depend on the changes of
their source alone, so that the end does not depend on the order between sources.
"""

from collections import Counter, defaultdict
from typing import Annotated, ClassVar

from streamkit import (
    Add,
    AddToSet,
    Aggregate,
    App,
    Avg,
    Change,
    Completed,
    Completions,
    Count,
    Delete,
    Distinct,
    Entity,
    Index,
    Inserted,
    Key,
    Max,
    Min,
    Modified,
    PoisonChange,
    Policy,
    Put,
    Query,
    Removed,
    Send,
    Set,
    Sum,
    Table,
    Top,
    absent,
)
from streamkit.effects import Put as PutEffect
from streamkit.sinks.sink import Limits
from streamkit.testing import Comparison

SHOPS = "abc"
CROWD, FEW = 60, 4


class Sale(Entity, pk="SALES#{shop}", sk="SALE#{number:03d}"):
    shop: str
    number: int
    buyer: str
    amount: int
    poison: bool = False


class Shop(Entity, pk="SHOP#{shop}", sk="SHOP"):
    shop: str
    sales: int = 0


class Receipt(Entity, pk="RECEIPT#{shop}#{number:03d}", sk="RECEIPT"):
    shop: str
    number: int
    amount: int = 0


class Edits(Entity, pk="EDITS#{shop}", sk="EDITS"):
    shop: str
    edits: int = 0
    buyers: frozenset[str] = frozenset()


class Ledger(Entity, pk="LEDGER#{buyer}", sk="LEDGER"):
    buyer: str
    steps: tuple[str, ...] = ()


class Checked(Entity, pk="CHECKED#{shop}#{number:03d}", sk="CHECKED"):
    shop: str
    number: int
    amount: int = 0


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL"):
    deal: str
    brand: str


class Watch(Entity, pk="WATCH#{brand}", sk="USER#{user}"):
    brand: str
    user: str


class Note(Entity, pk="NOTES#{user}", sk="NOTE#{deal}"):
    user: str
    deal: str


class User(Entity, pk="USER#{user}", sk="USER"):
    user: str
    name: str


class Member(Entity, pk="ROOM#{room}", sk="USER#{user}"):
    room: str
    user: str
    name: str = ""
    by_user: ClassVar = Index("GSI1", pk="USER#{user}", sk="ROOM#{room}")


class Name(Entity, pk="NAME#{name}", sk="NAME"):
    name: str
    user: str


class Totals(Aggregate[Sale], pk="TOTALS#{shop}", sk="TOTALS"):
    shop: str
    sales: Annotated[int, Count()] = 0
    amount: Annotated[int, Sum("amount")] = 0
    mean: Annotated[float | None, Avg("amount")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Totals"]:
        return cls.key(shop=sale.shop)


class Busy(Aggregate[Sale], pk="BUSY#{what}", sk="BUSY", spread=4):
    what: str
    sales: Annotated[int, Count()] = 0
    amount: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Busy"]:
        return cls.key(what="all")


class Best(Aggregate[Sale], pk="BEST#{shop}", sk="BEST"):
    shop: str
    smallest: Annotated[int | None, Min("amount")] = None
    largest: Annotated[int | None, Max("amount")] = None
    latest: Annotated[tuple[int, ...], Top(3, by="number")] = ()

    @classmethod
    def group(cls, sale: Sale) -> Key["Best"]:
        return cls.key(shop=sale.shop)

    @classmethod
    def members(cls, shop: str) -> Query[Sale]:
        return Sale.query(shop=shop)


class OntoShop(Aggregate[Sale], onto=Shop, missing="skip"):
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key[Shop]:
        return Shop.key(shop=sale.shop)


class Door:
    """A sink that is never opened: a recorder replaces it."""

    name = "door"
    limits = Limits(items=10)


class Mailer:
    """Somebody else's system, which the app calls by itself."""

    def __init__(self):
        self.sent = []

    async def send(self, what):
        self.sent.append(what)


def make_app(**said):
    app = App(
        "market",
        table="Market",
        entities=[Receipt, Edits, Ledger, Checked, Note, Shop, Watch, Name],
        policy=Policy(retry_limit=0, breaker=False),
        **said,
    )
    app.mailer = Mailer()
    door = app.sink(Door())
    for aggregate in (Totals, Busy, Best, OntoShop):
        app.aggregate(aggregate)

    @app.lifespan
    async def resources():
        yield app.mailer

    add_effects(app, door)
    add_reach(app)
    return app


def add_effects(app, door):
    """Add functions of a sale: plain effects, one that reads, sends, own I/O, and a fussy one."""

    @app.on
    def receipt(change: Change[Sale]) -> Put[Receipt] | Set[Receipt] | Delete[Receipt]:
        if isinstance(change, Inserted):
            sale = change.new
            return Put(Receipt(shop=sale.shop, number=sale.number, amount=sale.amount))
        if isinstance(change, Modified):
            key = Receipt.key(shop=change.new.shop, number=change.new.number)
            return Set(key, amount=change.new.amount)
        return Delete(Receipt.key(shop=change.old.shop, number=change.old.number))

    @app.on(migrations="suppress")
    def edited(change: Modified[Sale]) -> list[Add[Edits] | AddToSet[Edits]]:
        key = Edits.key(shop=change.new.shop)
        return [Add(key, edits=1), AddToSet(key, buyers={change.new.buyer})]

    @app.on
    async def ledger(change: Inserted[Sale] | Removed[Sale], table: Table) -> Put[Ledger]:
        sale = change.new or change.old
        key = Ledger.key(buyer=f"{sale.shop}{sale.number:03d}")
        found = await table.get(key) or Ledger(buyer=key.pk.partition("#")[2])
        return Put(Ledger(buyer=found.buyer, steps=(*found.steps, type(change).__name__)))

    @app.on
    def tell(change: Inserted[Sale] | Modified[Sale]) -> Send:
        sale = change.new
        return Send(door, {"sale": f"{sale.shop}{sale.number}", "amount": sale.amount})

    @app.on(delivery="at_least_once")
    async def mail(
        change: Inserted[Sale], mailer: Mailer, completions: Completions
    ) -> Completed | None:
        if await completions.has(change):
            return None
        await mailer.send(f"{change.new.shop}{change.new.number}")
        return Completed(change)

    @app.on(migrations="suppress")
    def fussy(change: Inserted[Sale] | Modified[Sale]) -> Set[Checked]:
        if change.new.poison:
            raise PoisonChange("not this one")
        key = Checked.key(shop=change.new.shop, number=change.new.number)
        return Set(key, amount=change.new.amount)


def add_reach(app):
    """Add handlers that reach beyond one item: fan-outs, a mirror, derived items."""

    def watchers(change: Inserted[Deal]) -> Query[Watch]:
        return Watch.query(brand=change.new.brand)

    @app.fan_out(watchers, inline=20)
    def notify(change: Inserted[Deal], to: Watch) -> Put[Note]:
        return Put(Note(user=to.user, deal=change.new.deal)).only_if(absent, otherwise="omit")

    def rooms_of(user: User) -> Query[Member]:
        return Member.query(index=Member.by_user, user=user.user)

    def user_of(member: Member) -> Key[User]:
        return User.key(user=member.user)

    @app.mirror(copies=rooms_of, source=user_of)
    def copy_name(user: User, copy: Member) -> Set[Member]:
        return Set(copy.item_key, name=user.name)

    @app.derive
    def name(user: User) -> Name:
        return Name(name=f"{user.name}-{user.user}", user=user.user)


def add_migrations(app):
    """Add a migration of each mode that handlers may live beside; each item's shape stays.

    What is set is known to no entity, so that hosts with and without a migration come to the same.
    """

    @app.migration("0001", Sale)
    def priced(amount: int) -> Set[Sale]:
        return Set(priced=f"{amount}")

    @app.migration("0002", User, mode="derive", owner="name")
    def named(user: User) -> Name:
        return Name(name=f"{user.name}-{user.user}", user=user.user)

    @app.migration("0003", Shop, mode="touch")
    def opened(shop: str) -> Set[Shop]:
        return Set(opened=f"in {shop}")

    @app.migration("0004", Watch, mode="rekey", to="Elsewhere")
    def elsewhere(watch: Watch) -> Watch:
        return watch

    app.migration("0005", Busy, mode="aggregate")

    @app.migration("0006", Sale)
    def audited(amount: int) -> Set[Sale]:
        return Set(audited=f"{amount}")


LAST = ("0006",)
"""Begins when the traffic is over: then every sale has what it sets."""


def audited_wrong(final):
    """Return the sales that the last migration has not left as it should have."""
    items = (item for item in final.items["Market"] if item["PK"]["S"].startswith("SALES#"))
    return [item for item in items if item.get("audited") != {"S": item["amount"]["N"]}]


class Market:
    """The traffic; what it does depends on its own chance alone, so that it is the same again."""

    def __init__(self, app):
        self.app = app
        self.deals = 0
        self.sales = {}

    async def open(self, writer):
        await writer.put(*(Shop(shop=shop) for shop in SHOPS))
        await writer.put(*(User(user=f"u{n}", name="first") for n in range(4)))
        crowds = (("loud", CROWD), ("calm", FEW))
        for brand, size in crowds:
            await writer.put(*(Watch(brand=brand, user=f"w{n:02}") for n in range(size)))

    async def act(self, writer):
        rng = writer.rng
        dice = rng.random()
        sale = Sale(
            shop=rng.choice(SHOPS),
            number=rng.randrange(8),
            buyer=rng.choice("xyz"),
            amount=rng.randrange(100),
            poison=rng.random() < 0.05,
        )
        if dice < 0.55:
            if self.sales.get(sale.item_key) == sale:
                # A sale that is written again as it is loses what a migration has set: a change
                # beside a migration, and none without one.
                sale = sale.model_copy(update={"amount": sale.amount + 1})
            self.sales[sale.item_key] = sale
            await writer.put(sale)
        elif dice < 0.75:
            self.sales.pop(sale.item_key, None)
            await writer.delete(sale.item_key)
        elif dice < 0.82:
            self.deals += 1
            await writer.put(Deal(deal=str(self.deals), brand=rng.choice(("loud", "calm"))))
        elif dice < 0.91:
            await writer.put(User(user=f"u{rng.randrange(4)}", name=rng.choice("klm")))
        else:
            await writer.put(Member(room=rng.choice("rs"), user=f"u{rng.randrange(4)}"))

    def expected(self, final):
        changes = replay(final.log)
        sales = {key: new for key, (*_, new) in _last(changes, Sale).items() if new is not None}
        yield from _aggregates(final, sales.values())
        yield from _plain_effects(final, changes, sales.values())
        yield from _parked(final, changes)
        yield from _reach(final)
        inserted = [f"{new.shop}{new.number}" for _, old, new in changes[Sale] if old is None]
        keys = Counter(set(self.app.mailer.sent))
        yield Comparison.of("mailed", keys, Counter(set(inserted)))
        done = sum(item.get("_sk_kind") == {"S": "done"} for item in final.items["Market"])
        yield Comparison.of("completed", {"all": done}, {"all": len(inserted)})


def replay(log):
    """Return the changes that writes have made, by entity: key, before and after."""
    there, changes = {}, defaultdict(list)
    for written in log:
        effect = written.effect
        key, new = effect.key, effect.entity if isinstance(effect, PutEffect) else None
        old = there.get(key)
        there[key] = new
        if old != new:
            changes[key.entity].append((key, old, new))
    return changes


def _last(changes, entity):
    return {change[0]: change for change in changes[entity]}


def _aggregates(final, sales):
    by_shop = defaultdict(list)
    for sale in sales:
        by_shop[sale.shop].append(sale)
    totals, best = [], []
    for shop, some in by_shop.items():
        amounts = [sale.amount for sale in some]
        mean = sum(amounts) / len(some)
        buyers = len({sale.buyer for sale in some})
        totals.append(
            Totals(shop=shop, sales=len(some), amount=sum(amounts), mean=mean, buyers=buyers)
        )
        latest = tuple(sorted((sale.number for sale in some), reverse=True)[:3])
        best.append(Best(shop=shop, smallest=min(amounts), largest=max(amounts), latest=latest))
    everything = [sale.amount for some in by_shop.values() for sale in some]
    busy = Busy(what="all", sales=len(everything), amount=sum(everything))
    yield final.compare(Totals, totals)
    yield final.compare(Best, best)
    yield final.compare(Busy, [busy])
    yield final.compare(Shop, [Shop(shop=s, sales=len(by_shop[s])) for s in SHOPS])


def _plain_effects(final, changes, sales):
    receipts = [Receipt(shop=s.shop, number=s.number, amount=s.amount) for s in sales]
    yield final.compare(Receipt, receipts)
    edits, steps, told = {}, defaultdict(list), Counter()
    for _, old, new in changes[Sale]:
        sale = new or old
        if old and new:
            count, buyers = edits.get(sale.shop, (0, frozenset()))
            edits[sale.shop] = count + 1, buyers | {new.buyer}
        else:
            steps[f"{sale.shop}{sale.number:03d}"].append("Inserted" if new else "Removed")
        if new:
            told[f"{new.shop}{new.number}", new.amount] += 1
    wanted = [Edits(shop=shop, edits=n, buyers=who) for shop, (n, who) in edits.items()]
    yield final.compare(Edits, wanted)
    ledgers = [Ledger(buyer=buyer, steps=tuple(names)) for buyer, names in steps.items()]
    yield final.compare(Ledger, ledgers)
    bodies = (delivery.body for delivery in final.sent["door"].once)
    yield Comparison.of("told", Counter((b["sale"], b["amount"]) for b in bodies), told)


def _parked(final, changes):
    """Compare what the fussy handler has parked, and what it has written before."""
    waiting, checked = Counter(), {}
    for key, _, new in changes[Sale]:
        if new is None:
            continue
        name = (new.shop, new.number)
        if new.poison or key in waiting:
            waiting[key] += 1
        else:
            checked[name] = new.amount
    wanted = [Checked(shop=s, number=n, amount=amount) for (s, n), amount in checked.items()]
    yield final.compare(Checked, wanted)
    kinds = Counter(
        item["handler"]["S"]
        for item in (_own(item) for item in final.items["Market"])
        if item.get("kind") == {"S": "parked"}
    )
    yield Comparison.of("parked", kinds, Counter({"fussy": n} if (n := waiting.total()) else {}))


def _own(item):
    return {name.removeprefix("_sk_"): wire for name, wire in item.items()}


def _reach(final):
    crowd = {
        brand: [watch.user for watch in final[Watch] if watch.brand == brand]
        for brand in ("loud", "calm")
    }
    notes = [Note(user=user, deal=deal.deal) for deal in final[Deal] for user in crowd[deal.brand]]
    yield final.compare(Note, notes)
    names = {user.user: user.name for user in final[User]}
    members = [Member(room=m.room, user=m.user, name=names[m.user]) for m in final.puts(Member)]
    yield final.compare(Member, {m.item_key: m for m in members}.values())
    yield final.compare(
        Name, [Name(name=f"{name}-{user}", user=user) for user, name in names.items()]
    )
