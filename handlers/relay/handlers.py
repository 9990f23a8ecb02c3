"""What goes where: the app and its listeners, each with positions and a pace of its own.

A search index that is down for an hour holds up neither the database nor the notices: they are
other listeners. All of them read each page of the stream once, together.
"""

from decimal import Decimal
from typing import Annotated

from handlers.relay.entities import Follower, Order
from handlers.relay.places import Addresses, Places
from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Expired,
    Inserted,
    Modified,
    Query,
    Send,
    Sum,
    TableShape,
    became,
)

INLINE = 5
"""Audiences up to this size are told at once, larger ones page by page beside the shard."""

Written = Inserted[Order] | Modified[Order]

app = App("relay", table="Relay")
analytics = app.listener("analytics")
database = app.listener("database")
search = app.listener("search")
notices = app.listener("notices")

SHAPE = TableShape(ttl="expires")

places = Places.at(Addresses())
archive, hook = app.sink(places.archive), app.sink(places.hook)
live, lake = analytics.sink(places.live), analytics.sink(places.lake)
rows = database.sink(places.rows)
documents = search.sink(places.documents)
queue, topic, bus = (
    notices.sink(places.queue),
    notices.sink(places.topic),
    notices.sink(places.bus),
)


# -- aggregation, fan-out and the archive ------------------------------------------------------


@app.aggregate
class CustomerOrders(Aggregate[Order], pk="ORDERSOF#{customer}", sk="ORDERSOF#{customer}"):
    """How many orders a customer has, and what they come to."""

    customer: str
    orders: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("total")] = Decimal(0)


def followers(change: Written) -> Query[Follower]:
    """Return the followers of a customer."""
    return Follower.query(customer=change.new.customer)


@app.fan_out(followers, when=became("status", "SHIPPED"), inline=INLINE)
def tell_followers(change: Written, to: Follower) -> Send:
    """Post to the webhook for each follower of the customer."""
    return Send(hook, {"to": to.username, "order_id": change.new.order_id})


@app.on
def keep(change: Expired[Order]) -> Send:
    """Archive what has expired, as it was."""
    return Send(archive, change.old)


# -- onward: every change, as it is made -------------------------------------------------------


@analytics.on
def onward(change: Change[Order]) -> tuple[Send, Send]:
    """Pass every change on to Kinesis, for live views, and to the lake, for later."""
    return Send(live, change.new), Send(lake, change.new)


# -- hybrid storage: a database and a search index that follow the table -----------------------


def name_of(change: Change[Order]) -> str:
    """Return what an order is called in the database and the index; no two share it."""
    return f"{change.key.pk!s}/{change.key.sk!s}"


@database.on
def follow_rows(change: Change[Order]) -> Send:
    """Keep a row for each order; without an order there is no row."""
    return Send(rows, change.new, id=name_of(change))


@search.on
def follow_documents(change: Change[Order]) -> Send:
    """Keep a document for each order; without an order there is no document."""
    return Send(documents, change.new, id=name_of(change))


# -- notices -----------------------------------------------------------------------------------


@notices.on
def pick(change: Change[Order]) -> Send:
    """Tell the warehouse of every change; those of one order arrive in order."""
    return Send(queue, change.new)


@notices.on(when=became("status", "SHIPPED"))
def announce(change: Written) -> tuple[Send, Send]:
    """Announce what is shipped: on the topic, and on the bus."""
    body = {"order_id": change.new.order_id, "customer": change.new.customer}
    return Send(topic, body), Send(bus, body)
