"""Apps with migrations, and applications that write while these run."""

import random
from collections.abc import Callable
from typing import Annotated, Any

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Key,
    Remove,
    Set,
)


class Order(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "NEW"
    day: str = "d1"
    status_day: str | None = None
    note: str | None = None


class OldOrder(Entity, pk="C#{user}", sk="ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "NEW"


class NewCount(Aggregate[Order], pk="NEW#{user}", sk="N"):
    user: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["NewCount"]:
        return cls.key(user=order.user)


class OldCount(Aggregate[OldOrder], pk="OLD#{user}", sk="N"):
    user: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: OldOrder) -> Key["OldCount"]:
        return cls.key(user=order.user)


class Profile(Entity, pk="USER#{name}", sk="#METADATA"):
    name: str
    city: str = "x"
    click: int | None = None


class Stats(Entity, pk="USER#{name}", sk="#METADATA#STATS"):
    name: str
    click: int = 0


class Customer(Entity, pk="CUSTOMER#{name}", sk="CUSTOMER#{name}"):
    name: str
    email: str


class Email(Entity, pk="EMAIL#{email}", sk="EMAIL#{email}"):
    email: str
    name: str


def ignore(change: Change[Order]) -> None:
    """Listen, so that the app has a handler."""


def status_day(status: str, day: str) -> Set[Order]:
    return Set(status_day=f"{status}#{day}")


def without_status_day(status: str) -> Remove[Order]:
    return Remove("status_day")


def in_place(mode: Any = "in_place", function: Callable[..., Any] = status_day) -> App:
    app = App("shop", table="Shop", entities=[Order])
    app.on(ignore)
    app.migration("0001", Order, mode=mode, reverse=without_status_day)(function)
    return app


def moved(order: OldOrder) -> Order:
    return Order(user=order.user, order_id=order.order_id, status=order.status)


def moved_back(order: Order) -> OldOrder:
    return OldOrder(user=order.user, order_id=order.order_id, status=order.status)


def rekey() -> App:
    app = App("shop", table="Shop", entities=[Order, OldOrder])
    app.aggregate(NewCount)
    app.aggregate(OldCount)
    app.migration("0001", OldOrder, mode="rekey", reverse=moved_back)(moved)
    return app


def stats(name: str, click: int | None = None) -> list[Stats | Remove[Profile]]:
    return [] if click is None else [Stats(name=name, click=click), Remove("click")]


def one_item_again(profile: Profile, parts: list[Stats]) -> Set[Profile]:
    return Set(click=parts[0].click if parts else None)


def split() -> App:
    app = App("chat", table="Chat", entities=[Profile, Stats])
    app.on(name="ignore")(ignore_profile)
    app.migration(
        "0001",
        Profile,
        mode="split",
        reverse=one_item_again,
        collect=lambda profile: Stats.query(name=profile.name),
        source=lambda part: Profile.key(name=part.name),
    )(stats)
    return app


def ignore_profile(change: Change[Profile]) -> None:
    """Listen, so that the app has a handler."""


def marker(name: str, email: str) -> Email:
    return Email(email=email, name=name)


def email_marker(customer: Customer) -> Email:
    return Email(email=customer.email, name=customer.name)


def derive() -> App:
    app = App("shop", table="Shop", entities=[Customer, Email])
    app.derive(email_marker)
    app.migration("0001", Customer, mode="derive", owner="email_marker")(marker)
    return app


Where = Callable[[str], type[Any] | None]
"""Says for a phase which entity the application writes, or that it writes nothing."""


def old_then_new(old: type[Any], new: type[Any]) -> Where:
    """Return what a well-behaved team does: it writes nothing while pairs are switched."""

    def where(phase: str) -> type[Any] | None:
        if phase in ("switching", "returning", "following", "unturning", "dropping"):
            return None
        return new if phase in ("soaking", "contracting", "closing", "done") else old

    return where


UNTOUCHED = 900
"""The number of an order that is never written after the beginning."""


class Orders:
    """An old application: whole puts, updates of what is there, and deletions."""

    def __init__(self, where: Where = lambda _: Order, items: int = 30) -> None:
        self.where = where
        self.items = items

    async def open(self, aws: Any, schema: Any, rng: random.Random) -> None:
        for number in (*range(self.items), UNTOUCHED):
            entity = self.where("")
            order = entity(user=f"u{number % 5}", order_id=f"{number}", status="NEW")
            item = order.attributes(schema)
            item["unknown"] = {"S": f"{number}"}
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    async def act(self, aws: Any, schema: Any, rng: random.Random, phase: str) -> None:
        entity = self.where(phase)
        if entity is None:
            return
        number = rng.randrange(self.items + 10)
        status, dice = rng.choice(["NEW", "PAID", "SENT"]), rng.random()
        order = entity(user=f"u{number % 5}", order_id=f"{number}", status=status)
        key = order.item_key.wire(schema)
        if dice < 0.3:
            await aws.dynamodb.put_item(TableName=schema.name, Item=order.attributes(schema))
        elif dice < 0.5:
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
        elif "Item" in await aws.dynamodb.get_item(TableName=schema.name, Key=key):
            name = "status" if dice < 0.8 else "note"
            await aws.dynamodb.update_item(
                TableName=schema.name,
                Key=key,
                UpdateExpression="SET #n = :v",
                ExpressionAttributeNames={"#n": name},
                ExpressionAttributeValues={":v": {"S": status}},
            )


class Clicks:
    """An application that counts clicks in the profile, or in an item of their own."""

    def __init__(self) -> None:
        self.where = old_then_new(Profile, Stats)
        self.clicks = {f"u{number}": number for number in range(15)}

    async def open(self, aws: Any, schema: Any, rng: random.Random) -> None:
        for name, click in self.clicks.items():
            item = Profile(name=name, click=click).attributes(schema)
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    async def act(self, aws: Any, schema: Any, rng: random.Random, phase: str) -> None:
        entity, name = self.where(phase), rng.choice(sorted(self.clicks))
        if entity is None:
            return
        click = rng.random() < 0.8
        self.clicks[name] += click
        update = "ADD click :v SET #n = :n" if click else "SET city = :v, #n = :n"
        await aws.dynamodb.update_item(
            TableName=schema.name,
            Key=(entity if click else Profile).key(name=name).wire(schema),
            UpdateExpression=update,
            ExpressionAttributeNames={"#n": "name"},
            ExpressionAttributeValues={
                ":v": {"N": "1"} if click else {"S": f"{rng.random()}"},
                ":n": {"S": name},
            },
        )


class Customers:
    """Customers who change their e-mail addresses; two of them have the same one."""

    async def open(self, aws: Any, schema: Any, rng: random.Random) -> None:
        for number in range(25):
            email = f"e{number if number != 7 else 8}"
            item = Customer(name=f"u{number}", email=email).attributes(schema)
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)

    async def act(self, aws: Any, schema: Any, rng: random.Random, phase: str) -> None:
        number = rng.randrange(10, 35)
        customer = Customer(name=f"u{number}", email=f"e{number}-{rng.randrange(3)}")
        if rng.random() < 0.2:
            key = customer.item_key.wire(schema)
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
        else:
            item = customer.attributes(schema)
            await aws.dynamodb.put_item(TableName=schema.name, Item=item)
