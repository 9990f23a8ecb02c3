"""What a policy allows follows from what handlers declare and what their code names."""

from functools import partial
from typing import Annotated, ClassVar

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Change,
    Check,
    Completed,
    Completions,
    Count,
    Delete,
    Effect,
    Entity,
    EventBridge,
    Firehose,
    Index,
    Inserted,
    Key,
    Kinesis,
    Loss,
    Put,
    Query,
    S3Archive,
    Scan,
    Set,
    Sns,
    Sqs,
    Table,
)
from streamkit.archive import DirectoryArchive
from streamkit.errors import ConfigurationError
from streamkit.operate.permissions.access import access_of, pattern_of, patterns_of
from streamkit.operate.permissions.denial import deny_application
from streamkit.operate.permissions.document import only_keys
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.replay.report import replay_name
from tests.permissions import Request, allows

ACCOUNT = "123456789012"
PLACE = AccountPlace.of(account=ACCOUNT, region="eu-central-1")
TABLE = f"arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/Shop"


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    username: str = "ann"
    by_user: ClassVar = Index("ByUser", pk="USER#{username}", sk="{number}")


class Bare(Entity, pk="{name}", sk="BARE"):
    name: str


class Settings(Entity, pk="SETTINGS", sk="{name}"):
    name: str


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int


def an_app(**options):
    return App("shop", table="Shop", **options)


def may(app, action, key=None, *, host="worker", resource=TABLE, **options):
    keys = () if key is None else (key,)
    request = Request(f"dynamodb:{action}", resource, keys)
    return allows(policy_for(app, host, PLACE, **options).to_dict(), request)


# -- writes ----------------------------------------------------------------------------------------


def test_a_handler_may_write_what_its_annotation_says_and_in_that_way_only():
    app = an_app()

    @app.on
    def told(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    assert may(app, "PutItem", "NOTICE#1")
    assert not may(app, "UpdateItem", "NOTICE#1")
    assert not may(app, "DeleteItem", "NOTICE#1")
    assert not may(app, "PutItem", "ORDER#1")
    assert not may(app, "GetItem", "ORDER#1")


def test_a_handler_that_does_not_say_what_it_writes_may_write_anything_and_a_note_says_so():
    app = an_app()

    @app.on
    def vague(change: Inserted[Order]) -> list[Effect]:
        return [Set(Order.key(number=change.new.number), username="bob")]

    assert may(app, "UpdateItem", "ANYTHING")
    assert not may(app, "DeleteItem", "ANYTHING")  # its code names no Delete
    assert "vague" in policy_for(app, "worker", PLACE).notes[0]


def test_an_aggregate_updates_its_groups_and_nothing_else():
    app = an_app()

    @app.aggregate
    class PerUser(Aggregate[Order], pk="PER#{username}", sk="PER"):
        username: str
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["PerUser"]:
            return cls.key(username=order.username)

    assert may(app, "UpdateItem", "PER#ann")
    assert not may(app, "PutItem", "PER#ann")
    assert not may(app, "UpdateItem", "ORDER#1")
    assert not may(app, "Query", "ORDER#1")


def test_a_table_with_another_name_in_this_account_changes_no_other_tables_name():
    app = an_app(tables=["Archive"], control_table="Control")
    arn = TABLE.replace("Shop", "shop-prod")
    place = AccountPlace.of(table_arn=arn)
    (described,) = (s for s in policy_for(app, "worker", place).statements if s.sid[:4] == "Desc")
    others = [TABLE.replace("Shop", name) for name in ("Control", "Archive")]
    assert list(described.resources) == [arn, *others]


def test_what_is_written_to_another_table_is_allowed_there():
    app = an_app(tables=["Archive"])

    @app.on(writes=())
    def archive(change: Inserted[Order]) -> Put[Order]:
        return Put(change.new).to("Archive")

    there = TABLE.replace("Shop", "Archive")
    assert may(app, "PutItem", "ORDER#1", resource=there)
    assert not may(app, "PutItem", "_sk#shop#x", resource=there)
    assert not may(app, "DeleteItem", "ORDER#1", resource=there)
    # `check` asks whether a worker may write there, with transactions that never apply.
    for action in ("ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem"):
        assert may(app, action, "_sk#shop#x", resource=there, host="operator")
        assert not may(app, action, "_sk#shopping#x", resource=there, host="worker")


def test_what_says_neither_what_it_writes_nor_where_may_write_anything_there():
    app = an_app(tables=["Archive"])

    @app.on
    def archive(change: Inserted[Order]) -> list[Effect]:
        return [Put(Notice(number=change.new.number)).to("Archive")]

    there = TABLE.replace("Shop", "Archive")
    assert may(app, "PutItem", "NOTICE#1", resource=there)
    assert not may(app, "DeleteItem", "NOTICE#1", resource=there)


def test_a_shadow_handler_may_write_nothing_and_read_what_it_would_write():
    app = an_app()

    @app.on(shadow=True)
    def told(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    assert not may(app, "PutItem", "NOTICE#1")
    assert may(app, "BatchGetItem", "NOTICE#1")


# -- reads -----------------------------------------------------------------------------------------


async def number_of_notices(table: Table) -> int:
    return len([one async for one in table.scan(Notice)])


def test_reads_follow_the_code_through_the_functions_that_it_calls():
    app = an_app()

    @app.on
    async def counted(change: Inserted[Order], table: Table) -> Add[Settings] | None:
        return Add(Settings.key(name="n"), n=await number_of_notices(table)) if change else None

    for action in ("GetItem", "BatchGetItem", "Query", "ConditionCheckItem"):
        assert may(app, action, "NOTICE#1")
        assert may(app, action, "ORDER#1")
        assert not may(app, action, "SECRET#1")
    assert may(app, "Scan")
    assert may(app, "Query", "USER#ann", resource=f"{TABLE}/index/ByUser")
    assert not may(app, "Query", "USER#ann", resource=f"{TABLE}/index/Other")


def test_what_mends_losses_may_read_what_its_code_names():
    async def mend(loss: Loss, table: Table) -> None:
        async for notice in table.query(Notice.query(number=1)):
            del notice, loss

    app = an_app(on_loss=mend)
    assert may(app, "Query", "NOTICE#1")
    assert not may(app, "Query", "ORDER#1")


def test_what_a_partial_function_is_given_may_be_read():
    async def mend(entity: type[Entity], loss: Loss, table: Table) -> None:
        del entity, loss, table

    app = an_app(on_loss=partial(mend, Notice))
    assert may(app, "GetItem", "NOTICE#1")
    assert not may(app, "GetItem", "ORDER#1")


def test_another_table_is_read_where_the_code_says_so_and_else_not():
    app = an_app(tables=["Archive"])

    @app.on
    async def read(change: Inserted[Order], table: Table) -> Put[Notice] | None:
        there = await table.of("Archive").get(Notice.key(number=1))
        return None if there else Put(Notice(number=1))

    there = TABLE.replace("Shop", "Archive")
    assert may(app, "GetItem", "NOTICE#1", resource=there)
    assert not may(app, "GetItem", "SETTINGS", resource=there)
    assert not may(app, "PutItem", "NOTICE#1", resource=there)


def test_what_is_written_elsewhere_is_not_read_there():
    app = an_app(tables=["Archive"])

    @app.on
    async def archive(change: Inserted[Order], table: Table) -> Put[Notice] | None:
        there = await table.get(Notice.key(number=1))
        return None if there else Put(Notice(number=1)).to("Archive")

    there = TABLE.replace("Shop", "Archive")
    assert may(app, "PutItem", "NOTICE#1", resource=there)
    assert not may(app, "GetItem", "NOTICE#1", resource=there)


async def notice_at(key: Key[Notice], table: Table) -> object:
    return await table.get(key)


async def given(loss: Loss, table: Table, more: object) -> None:
    await notice_at(loss, table)
    del more


async def nested(loss: Loss, table: Table) -> None:
    del loss, table
    [[(lambda: Notice) for _ in ()] for _ in ()]


@pytest.mark.parametrize(
    ("reads", "keys"),
    [
        (partial(given, more=None), {"NOTICE#1"}),  # by the annotation of what it calls
        (partial(given, more=Settings), {"NOTICE#1", "SETTINGS"}),
        (nested, {"NOTICE#1"}),
    ],
)
def test_what_annotations_keywords_and_nested_functions_name_may_be_read(reads, keys):
    app = an_app(on_loss=reads)
    assert {key for key in ("NOTICE#1", "SETTINGS", "ORDER#1") if may(app, "GetItem", key)} == keys


EVERYONE = Scan(Order)


@pytest.mark.parametrize("audience", [lambda _: EVERYONE, lambda _: Scan(Order)])
def test_an_audience_that_is_a_scan_may_be_scanned_wherever_it_is_made(audience):
    app = an_app()

    @app.fan_out(audience)
    def tell(change: Inserted[Notice], to: Order) -> Put[Settings]:
        return Put(Settings(name=f"{change.new.number}/{to.number}"))

    assert may(app, "Scan")


def test_without_a_scan_in_the_code_none_is_allowed():
    app = an_app()

    @app.on
    async def read(change: Inserted[Order], table: Table) -> None:
        await table.get(change.new.item_key)

    assert not may(app, "Scan")
    assert not may(app, "Scan", resource=f"{TABLE}/index/ByUser")
    assert may(app, "Scan", host="operator")


def test_a_check_is_allowed_on_what_the_code_names():
    app = an_app()

    @app.on
    def checked(change: Inserted[Order]) -> Check[Notice]:
        return Check(Notice.key(number=change.new.number), None)

    assert may(app, "ConditionCheckItem", "NOTICE#1")
    assert not may(app, "GetItem", "NOTICE#1")


def orders_of(change: Inserted[Notice]) -> Query[Order]:
    return Order.query(index=Order.by_user, username=str(change.new.number))


def test_a_fan_out_reads_its_audience_and_writes_what_its_function_says():
    app = an_app()

    @app.fan_out(orders_of)
    def tell(change: Inserted[Notice], to: Order) -> Put[Settings]:
        return Put(Settings(name=f"{change.new.number}/{to.number}"))

    assert may(app, "Query", "USER#1", resource=f"{TABLE}/index/ByUser")
    assert may(app, "GetItem", "ORDER#1")
    assert may(app, "PutItem", "SETTINGS")
    assert not may(app, "UpdateItem", "SETTINGS")
    assert not may(app, "DeleteItem", "SETTINGS")
    assert not may(app, "PutItem", "ORDER#1")


@pytest.mark.parametrize("gone", ["keep", "delete"])
def test_a_mirror_sets_its_copies_and_deletes_them_only_if_it_says_so(gone):
    app = an_app()

    @app.mirror(
        copies=lambda notice: Order.query(index=Order.by_user, username=str(notice.number)),
        source=lambda order: Notice.key(number=order.number),
        gone=gone,
    )
    def copy(notice: Notice, order: Order) -> Set[Order]:
        return Set(order.item_key, username=str(notice.number))

    assert may(app, "UpdateItem", "ORDER#1")
    assert may(app, "DeleteItem", "ORDER#1") == (gone == "delete")
    assert not may(app, "PutItem", "ORDER#1")
    assert not may(app, "UpdateItem", "NOTICE#1")
    assert may(app, "Query", "_sk##copies#copy#x")
    assert may(app, "PutItem", "_sk##copies#copy#x")


def test_derived_items_are_put_and_deleted_and_never_updated():
    app = an_app()

    @app.derive
    def notice_of(order: Order) -> Notice:
        return Notice(number=order.number)

    assert may(app, "PutItem", "NOTICE#1")
    assert may(app, "DeleteItem", "NOTICE#1")
    assert not may(app, "UpdateItem", "NOTICE#1")
    # Where two sources want one place, it reads and checks both, and what is there.
    for action in ("GetItem", "ConditionCheckItem"):
        assert may(app, action, "NOTICE#1")
        assert may(app, action, "ORDER#1")
        assert not may(app, action, "SETTINGS")


def test_derived_items_that_are_not_named_may_be_in_any_place():
    app = an_app()

    @app.derive
    def something(order: Order) -> list[Entity]:
        return [Notice(number=order.number)]

    for action in ("GetItem", "ConditionCheckItem", "PutItem"):
        assert may(app, action, "ANYTHING")


def test_an_aggregate_of_one_group_in_parts_updates_each_of_them():
    class Total(Aggregate[Order], pk="TOTAL", sk="TOTAL", spread=4):
        orders: Annotated[int, Count()] = 0

    app = an_app()
    app.aggregate(Total)
    assert pattern_of(Total) == "TOTAL*"
    assert may(app, "UpdateItem", "TOTAL#3")


def test_an_aggregate_that_removes_what_is_empty_deletes_groups_and_puts_none():
    app = an_app()

    @app.aggregate
    class PerUser(Aggregate[Order], pk="PER#{username}", sk="PER", remove_empty=True):
        username: str
        orders: Annotated[int, Count()] = 0

    assert may(app, "DeleteItem", "PER#ann")
    assert not may(app, "PutItem", "PER#ann")


# -- control items ---------------------------------------------------------------------------------


def test_a_consumer_may_write_its_own_control_items_and_no_others():
    app = an_app()
    search = app.listener("search")

    @search.on
    def seen(change: Change[Order]) -> None:
        del change

    assert may(app, "UpdateItem", "_sk#shop#label#cursor#1")
    assert may(app, "UpdateItem", "_sk#shop.search#label#cursor#1")
    assert not may(app, "UpdateItem", "_sk#shopping#label#cursor#1")
    assert not may(app, "UpdateItem", "_sk#-#-#done#1")
    assert may(app, "UpdateItem", "_sk#shopping#label#cursor#1", host="operator")
    # A migration slows down while other consumers lag.
    assert may(app, "GetItem", "_sk#shopping#label#cursor#1", host="migrate")
    assert not may(app, "UpdateItem", "_sk#shopping#label#cursor#1", host="migrate")


def test_completions_are_read_and_written_where_they_are_used():
    app = an_app()

    @app.on(delivery="at_least_once")
    async def mail(change: Inserted[Order], completions: Completions) -> Completed | None:
        return None if await completions.has(change) else Completed(change)

    assert may(app, "PutItem", "_sk#-#-#done#1")


def test_completions_are_written_also_by_a_handler_that_reads_none():
    app = an_app()

    @app.on(delivery="at_least_once")
    async def mail(change: Inserted[Order]) -> Completed:
        return Completed(change)

    assert may(app, "PutItem", "_sk#-#-#done#1")


def test_replays_are_looked_at_by_workers_and_check_items_for_operators(tmp_path):
    app = an_app(archive=DirectoryArchive(tmp_path))

    @app.on
    def told(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    assert may(app, "GetItem", f"_sk#{replay_name('shop')}#x")
    assert not may(app, "UpdateItem", f"_sk#{replay_name('shop')}#x")
    assert may(app, "ConditionCheckItem", "ORDER#1", host="operator")
    assert not may(app, "ConditionCheckItem", "ORDER#1")


def test_a_control_table_takes_the_control_items_instead():
    app = an_app(control_table="Control")

    @app.on
    def told(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    control = TABLE.replace("Shop", "Control")
    assert may(app, "UpdateItem", "_sk#shop#x", resource=control)
    assert not may(app, "UpdateItem", "_sk#shop#x")
    assert not may(app, "Scan", resource=control), "there is no aggregate to sweep after"
    denied = deny_application(app, PLACE).to_dict()
    assert [s["Resource"] for s in denied["Statement"]] == [[TABLE], [control]]


@pytest.mark.parametrize("sort", [None, "X"])
def test_what_rebuilds_leave_is_swept_and_nothing_else_is(sort):
    class Item(Entity, pk="ITEM#{name}", sk=sort):
        name: str

    app = an_app()

    @app.aggregate
    class Items(Aggregate[Item], pk="ITEMS#{name}", sk=sort):
        name: str
        items: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, item: Item) -> Key["Items"]:
            return cls.key(name=item.name)

    assert may(app, "DeleteItem", "_sk#shop#label#ledger")
    assert not may(app, "BatchWriteItem", "_sk#shop#label#ledger"), "nothing is deleted so"
    assert may(app, "Scan") == may(app, "Scan", host="lambda") == (sort is None)
    assert not may(app, "Scan", host="migrate", resource=TABLE.replace("Shop", "Elsewhere"))
    for host in ("operator", "migrate"):  # a rebuild clears it, also that of a migration
        assert may(app, "DeleteItem", "ITEMS#x", host=host)
    assert not may(app, "DeleteItem", "ITEMS#x")


def test_a_rebuild_never_deletes_items_of_the_application():
    class Customer(Entity, pk="CUSTOMER#{username}", sk="CUSTOMER"):
        username: str
        orders: int = 0

    app = an_app()

    @app.aggregate
    class PerCustomer(Aggregate[Order], onto=Customer):
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key[Customer]:
            return Customer.key(username=order.username)

    for host in ("operator", "migrate"):
        assert may(app, "UpdateItem", "CUSTOMER#ann", host=host)
        assert not may(app, "DeleteItem", "CUSTOMER#ann", host=host)


def test_the_application_is_denied_control_items_and_nothing_else():
    everything = {"Effect": "Allow", "Action": ["dynamodb:*"], "Resource": ["*"]}
    denied = deny_application(an_app(), PLACE).to_dict()
    policy = {"Statement": [everything, *denied["Statement"]]}
    for action in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "PartiQLUpdate"):
        name = f"dynamodb:{action}"
        assert allows(policy, Request(name, TABLE, ("ORDER#1",)))
        assert not allows(policy, Request(name, TABLE, ("ORDER#1", "_sk#shop#x")))
    assert allows(policy, Request("dynamodb:GetItem", TABLE, ("_sk#shop#x",)))


# -- keys ------------------------------------------------------------------------------------------


def test_patterns_are_the_literal_beginnings_of_keys():
    assert pattern_of(Order) == "ORDER#*"
    assert pattern_of(Settings) == "SETTINGS"
    assert pattern_of(Bare) is None


def test_a_key_that_is_fixed_includes_none_that_begins_like_it():
    class Total(Entity, pk="TOTAL", sk="{name}"):
        name: str

    class PerShop(Entity, pk="TOTALS#{name}", sk="TOTALS"):
        name: str

    class PerTotal(Entity, pk="TOTALS#OF#{name}", sk="TOTALS"):
        name: str

    assert patterns_of([Total, PerShop, PerTotal]) == {"TOTAL", "TOTALS#*"}


def test_what_iam_would_read_as_a_wildcard_is_taken_as_it_is():
    class Odd(Entity, pk="A*?${name}", sk="{name}"):
        name: str

    assert pattern_of(Odd) == "A${*}${?}${$}*"
    condition = only_keys([pattern_of(Odd)])
    statement = {"Action": ["a"], "Resource": ["r"], "Effect": "Allow", "Condition": condition}
    assert allows({"Statement": [statement]}, Request("a", "r", ("A*?$x",)))
    assert not allows({"Statement": [statement]}, Request("a", "r", ("AbcdE",)))


def test_an_entity_whose_keys_begin_with_a_field_leaves_no_key_out():
    app = an_app()

    @app.on
    def told(change: Inserted[Order]) -> Put[Bare] | Put[Notice]:
        return Put(Bare(name=str(change.new.number)))

    assert access_of([app]).own == {"PutItem": None}


def test_without_leading_keys_any_item_is_allowed():
    app = an_app()

    @app.on
    def told(change: Inserted[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number))

    assert may(app, "PutItem", "x", leading_keys=False)


@pytest.mark.parametrize("host", ["worker", "lambda"])
def test_an_app_that_counts_may_see_what_others_count_and_nothing_else_of_them(host):
    class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
        count: Annotated[int, Count()] = 0

    app, theirs = an_app(), "_sk#other#2026-10-01T00:00:00.000#"
    assert not may(app, "GetItem", f"{theirs}consumer", host=host)
    app.aggregate(Orders)
    assert may(app, "GetItem", f"{theirs}consumer", host=host)
    assert not may(app, "GetItem", f"{theirs}cursor#1", host=host)
    assert not may(app, "UpdateItem", f"{theirs}consumer", host=host)


@pytest.mark.parametrize("host", ["worker", "lambda", "migrate"])
def test_with_a_control_table_an_app_may_see_whether_it_has_run_without(host):
    app = App("shop", table="Shop", control_table="Control")
    mine = "_sk#shop#2026-10-01T00:00:00.000#"
    assert may(app, "GetItem", f"{mine}consumer", host=host)
    assert not may(app, "PutItem", f"{mine}consumer", host=host)
    assert not may(app, "GetItem", "_sk#other#2026-10-01T00:00:00.000#consumer", host=host)
    assert not may(app, "GetItem", f"{mine}cursor#1", host=host)


# -- sinks, places, hosts --------------------------------------------------------------------------

ACCOUNT_OF_SINKS = "210987654321"
SINKS = {
    "sqs:SendMessage": (
        Sqs("s", f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT_OF_SINKS}/orders.fifo"),
        f"arn:aws:sqs:eu-west-1:{ACCOUNT_OF_SINKS}:orders.fifo",
    ),
    "sns:Publish": (Sns("s", "arn:aws:sns:eu-west-1:1:t"), "arn:aws:sns:eu-west-1:1:t"),
    "events:PutEvents": (
        EventBridge("s", "bus", source="shop", detail_type="x"),
        f"arn:aws:events:eu-central-1:{ACCOUNT}:event-bus/bus",
    ),
    "kinesis:PutRecords": (
        Kinesis("s", "live"),
        f"arn:aws:kinesis:eu-central-1:{ACCOUNT}:stream/live",
    ),
    "firehose:PutRecordBatch": (
        Firehose("s", "lake"),
        f"arn:aws:firehose:eu-central-1:{ACCOUNT}:deliverystream/lake",
    ),
    "s3:PutObject": (
        S3Archive("s", "bucket", prefix="orders/"),
        "arn:aws:s3:::bucket/orders/date=2026-03-01/x.ndjson.gz",
    ),
}


@pytest.mark.parametrize("action", SINKS)
def test_each_sink_of_aws_may_be_sent_to_and_nothing_beside_it(action):
    sink, arn = SINKS[action]
    app = an_app()
    app.sink(sink)
    policy = policy_for(app, "worker", PLACE).to_dict()
    assert allows(policy, Request(action, arn))
    beside = "arn:aws:s3:::bucket/x" if action == "s3:PutObject" else arn[:-1]
    assert not allows(policy, Request(action, beside))


def test_a_listener_may_send_to_its_sinks():
    app = an_app()
    app.listener("search").sink(Sns("told", f"arn:aws:sns:eu-central-1:{ACCOUNT}:told"))
    sent = Request("sns:Publish", f"arn:aws:sns:eu-central-1:{ACCOUNT}:told", ())
    for host in ("worker", "lambda", "operator"):
        assert allows(policy_for(app, host, PLACE).to_dict(), sent)


def test_the_leases_of_a_kcl_are_read_by_who_imports_them():
    leases = TABLE.replace("Shop", "KclLeases")
    assert may(an_app(), "Scan", host="operator", resource=leases, leases="KclLeases")
    assert not may(an_app(), "Scan", host="operator", resource=leases)


def test_a_queue_of_an_emulator_is_named_by_its_path():
    app = an_app()
    app.sink(Sqs("s", "http://localhost:9324/000000000000/q"))
    (statement,) = [s for s in policy_for(app, "worker", PLACE).statements if s.sid == "Sink1"]
    assert statement.resources == ("arn:aws:sqs:eu-central-1:000000000000:q",)


@pytest.mark.parametrize("host", ["migrate", "operator"])
def test_a_list_of_keys_in_a_bucket_may_be_read_and_nothing_beside_it(host):
    def reads(source, name, host=host):
        policy = policy_for(an_app(), host, PLACE, keys_from=source).to_dict()
        return allows(policy, Request("s3:GetObject", f"arn:aws:s3:::{name}"))

    source = "s3://lists/2026/*.jsonl"
    assert reads(source, "lists/2026/*.jsonl")
    assert not reads(source, "lists/2026/other.jsonl")
    assert not reads(source, "lists/2026/*.jsonl", "worker")
    assert not reads("", "lists/2026/*.jsonl")
    assert not reads("keys.jsonl", "keys.jsonl")


@pytest.mark.parametrize("host", ["migrate", "operator"])
def test_an_index_or_an_export_may_be_read_and_nothing_beside_it(host):
    def may(source, action, resource, host=host):
        policy = policy_for(an_app(), host, PLACE, keys_from=source).to_dict()
        return allows(policy, Request(action, resource))

    table = policy_for(an_app(), host, PLACE).statements[0].resources[0]
    index = f"{table}/index/Sparse"
    assert may("index:Sparse", "dynamodb:Scan", index)
    assert may('index:Sparse:{"a": "b"}', "dynamodb:Query", index)
    assert not may("index:Sparse", "dynamodb:Scan", f"{index}2")
    assert not may("index:Sparse", "dynamodb:Scan", index, "worker")
    assert not may("", "dynamodb:Scan", index)
    source, folder = "s3://lists/AWSDynamoDB/01/manifest-summary.json", "arn:aws:s3:::lists"
    for name in ("manifest-summary.json", "manifest-files.json", "data/1.json.gz"):
        assert may(source, "s3:GetObject", f"{folder}/AWSDynamoDB/01/{name}")
    assert not may(source, "s3:GetObject", f"{folder}/AWSDynamoDB/02/data/1.json.gz")
    assert not may(source, "s3:PutObject", f"{folder}/AWSDynamoDB/01/data/1.json.gz")


def test_the_functions_may_write_their_log_and_a_worker_may_not():
    group = f"arn:aws:logs:eu-central-1:{ACCOUNT}:log-group:/aws/lambda/deals"
    request = Request("logs:PutLogEvents", f"{group}:log-stream:x")
    functions = policy_for(an_app(), "lambda", PLACE, function="deals").to_dict()
    assert allows(functions, request)
    other = Request("logs:PutLogEvents", request.resource.replace("deals", "other"))
    assert not allows(functions, other)
    assert not allows(policy_for(an_app(), "worker", PLACE).to_dict(), request)


@pytest.mark.parametrize("text", ["12345", "12345678901a", ""])
def test_an_account_has_twelve_digits(text):
    with pytest.raises(ConfigurationError, match="twelve digits"):
        AccountPlace.of(account=text)


def test_a_large_policy_says_that_it_is_too_large():
    app = an_app()
    for number in range(60):
        entity = type(f"E{number}", (Entity,), {}, pk=f"{number:0100d}#", sk="x")

        def told(change: Inserted[Order]) -> None:
            del change

        app.on(name=f"h{number}", writes=(entity,))(told)
    found = policy_for(app, "worker", PLACE)
    assert found.size > 6144
    assert any("inline" in note for note in found.notes)


def test_deleting_is_allowed_where_a_handler_deletes():
    app = an_app()

    @app.on
    def drop(change: Inserted[Order]) -> Delete[Notice]:
        return Delete(Notice.key(number=change.new.number))

    assert may(app, "DeleteItem", "NOTICE#1")
    assert not may(app, "PutItem", "NOTICE#1")


@pytest.mark.parametrize("reverse", [True, False])
def test_the_stream_of_another_table_is_read_where_there_is_a_way_back_from_it(reverse):
    app, there = an_app(), TABLE.replace("Shop", "ShopNew")

    def as_it_is(order: Order) -> Order:
        return order

    back = {"reverse": as_it_is} if reverse else {}
    app.migration("0001", Order, mode="rekey", to="ShopNew", **back)(as_it_is)
    for host in ("migrate", "operator"):
        assert may(app, "GetRecords", host=host, resource=f"{there}/stream/x") == reverse
        assert may(app, "Scan", host=host, resource=there)  # to verify, and to take it back
    assert not may(app, "GetRecords", resource=f"{there}/stream/x")
    assert not may(app, "Scan", resource=there)
    for host in ("worker", "lambda", "migrate", "operator"):  # all copy items that change meanwhile
        for action in ("BatchGetItem", "ConditionCheckItem", "GetItem", "PutItem", "DeleteItem"):
            assert may(app, action, "ORDER#1", host=host, resource=there)
            assert not may(app, action, "NOTICE#1", host=host, resource=there)
        assert may(app, "UpdateItem", "_sk#shop.0001#x", host=host)


def test_a_migration_of_the_items_of_an_index_reads_it():
    app = an_app()

    @app.migration("0002", Order, mode="touch", index=Order.by_user)
    def named(username: str) -> Set[Order]:
        return Set(Order, username=username.lower())

    for action in ("Query", "Scan"):
        assert may(app, action, "USER#ann", host="migrate", resource=f"{TABLE}/index/ByUser")


def test_the_parts_of_a_split_are_found_by_no_index():
    app = an_app()

    class Line(Entity, pk="LINE#{number}", sk="LINE#{place}"):
        number: int
        place: int
        by_place: ClassVar = Index("ByPlace", pk="PLACE#{place}", sk="{number}")

    class Gift(Line, pk="GIFT#{number}", sk="GIFT#{place}"):
        pass

    @app.migration(
        "0003",
        Order,
        mode="split",
        collect=lambda order: [one.query(number=order.number) for one in (Line, Gift)],
        source=lambda line: Order.key(number=line.number),
    )
    def lines(order: Order) -> list[Line]:
        return [Line(number=order.number, place=1)]

    for host in ("worker", "migrate"):
        for action in ("Query", "PutItem"):
            for key in ("LINE#1", "GIFT#1", "ORDER#1"):
                assert may(app, action, key, host=host)
        assert not may(app, "Query", "PLACE#1", host=host, resource=f"{TABLE}/index/ByPlace")


def test_a_migration_in_place_writes_its_entity_and_nothing_else():
    app = an_app()

    @app.migration("0004", Order)
    def lower(username: str) -> Set[Order]:
        return Set(Order, username=username.lower())

    for host in ("worker", "migrate"):
        assert may(app, "UpdateItem", "ORDER#1", host=host)
        assert not may(app, "UpdateItem", "NOTICE#1", host=host)


def test_a_migration_to_another_entity_copies_that_one_to_the_other_table():
    app, there = an_app(), TABLE.replace("Shop", "ShopNew")

    @app.migration("0005", Order, mode="rekey", to="ShopNew")
    def moved(order: Order) -> Notice:
        return Notice(number=order.number)

    for host in ("worker", "migrate"):
        assert may(app, "PutItem", "NOTICE#1", host=host, resource=there)
        assert not may(app, "PutItem", "ORDER#1", host=host, resource=there)
        assert not may(app, "PutItem", "NOTICE#1", host=host)
