"""The member list, in a table with a sort key and in one without; and which worker counts as dead."""

import random
from dataclasses import fields, replace

import pytest

from streamkit.aws import connect
from streamkit.errors import LeaseLost
from streamkit.fleet.members import Attendance, Member, MemberList, new_worker_name
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.schema import TableSchema
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.lease import LeaseWatch

LEASE, BLIND = 7.0, 4.0
FULL = Member(
    name="host.example/17/a.b#c", beats=3, at=1_800_000_000, fingerprint="f", generation=4,
    state="unfit", weight=5, leads=True, idle=True, held=9, news=2,
    claims=frozenset({"one", "two"}), childless=frozenset({"shardId-1"}),
    waits=frozenset({"shardId-1 confirm"}), follows=True, late=True, used="3/4", refused="no key",
    lease=12.5,
)  # fmt: skip


@pytest.fixture(params=[("pk", "sk"), ("pk",)], ids=["sort key", "simple key"])
async def member_list(request):
    names, types = request.param, ("HASH", "RANGE")
    engine = Engine(rng=random.Random(1))
    status, body = engine.call(
        "dynamodb",
        "CreateTable",
        {
            "TableName": "shop",
            "KeySchema": [
                {"AttributeName": n, "KeyType": t} for n, t in zip(names, types, strict=False)
            ],
            "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    assert status == 200, body
    sk = names[1] if len(names) > 1 else None
    schema = TableSchema("shop", "pk", sk, "S", sk and "S", {})
    async with connect(http_session=session_class(engine)) as aws:
        yield MemberList(CursorStore(aws.dynamodb, ControlSpace.of(schema, "app", "label")))


# -- the member list ------------------------------------------------------------------------------------


async def test_members_are_read_as_they_were_written(member_list):
    assert await member_list.read() == {}
    others = {name: Member(name) for name in ("a", "b")}
    for member in (FULL, *others.values()):
        await member_list.add(member)
    assert await member_list.read() == {FULL.name: FULL, **others}


async def test_what_a_member_claims_no_more_is_gone_from_its_item(member_list):
    await member_list.add(FULL)
    later = replace(FULL, beats=4, claims=frozenset(), childless=frozenset({"shardId-2"}))
    await member_list.write(later)
    assert await member_list.read() == {FULL.name: later}
    last = replace(later, beats=5, claims=frozenset({"three"}), childless=frozenset())
    last = replace(last, waits=frozenset(), refused="")
    await member_list.write(last)
    assert await member_list.read() == {FULL.name: last}


async def test_what_was_used_lately_is_left_out_of_an_item_that_all_workers_share(member_list):
    await member_list.add(replace(FULL, lately="1/2"))
    has_rows = member_list.store.space.schema.sk is not None
    assert (await member_list.read())[FULL.name].lately == ("1/2" if has_rows else "")


@pytest.mark.parametrize("fact", [field.name for field in fields(Member)])
def test_what_other_workers_act_on_is_news_and_what_comes_with_each_heartbeat_is_not(fact):
    other = replace(Member("me"), **{fact: "other"})
    comes_along = {"name", "beats", "at", "idle", "used", "lately", "waits", "refused"}
    is_like = Attendance({"me": other}).is_like(Attendance({"me": Member("me")}))
    assert is_like == (fact in comes_along)


@pytest.mark.parametrize("fresh", [True, False])
async def test_the_list_is_read_as_fresh_as_it_is_asked_for(member_list, fresh):
    asked = []
    dynamodb = member_list.store.dynamodb

    class Asked:
        def __getattr__(self, name):
            async def call(**request):
                asked.append(request["ConsistentRead"])
                return await getattr(dynamodb, name)(**request)

            return call

    await MemberList(replace(member_list.store, dynamodb=Asked())).look(fresh=fresh)
    assert asked == [fresh]


async def test_a_heartbeat_after_the_removal_is_refused_and_leaves_no_item(member_list):
    await member_list.add(FULL)
    await member_list.add(Member("other"))
    await member_list.remove(FULL.name)
    with pytest.raises(LeaseLost):
        await member_list.write(replace(FULL, beats=4))
    assert await member_list.read() == {"other": Member("other")}
    await member_list.remove(FULL.name)  # two may sweep the same


async def test_nobody_beats_that_has_not_joined(member_list):
    with pytest.raises(LeaseLost):
        await member_list.write(Member("other"))
    await member_list.add(Member("a"))
    with pytest.raises(LeaseLost):
        await member_list.write(Member("other"))


async def test_a_fleet_of_more_than_a_page_is_read_whole():
    """One reply of a query holds 1 MB; claims make the items long."""

    class Pages:
        def __init__(self):
            self.asked = []

        async def query(self, **request):
            self.asked.append(request.get("ExclusiveStartKey"))
            item = {
                "_sk_name": {"S": f"w{len(self.asked)}"}, "_sk_fingerprint": {"S": ""},
                "_sk_state": {"S": "active"}, "_sk_leads": {"BOOL": False},
                "_sk_idle": {"BOOL": False},
            } | {f"_sk_{n}": {"N": "1"} for n in ("beats", "at", "generation", "weight", "held", "news")}  # fmt: skip
            more = {"LastEvaluatedKey": {"pk": {"S": "x"}}} if len(self.asked) < 3 else {}
            return {"Items": [item], **more}

    pages, schema = Pages(), TableSchema("shop", "pk", "sk", "S", "S", {})
    members = await MemberList(CursorStore(pages, ControlSpace.of(schema, "app", "label"))).read()
    assert members.keys() == {"w1", "w2", "w3"}
    assert pages.asked == [None, {"pk": {"S": "x"}}, {"pk": {"S": "x"}}]


def test_each_start_of_a_worker_has_a_name_of_its_own():
    assert new_worker_name() != new_worker_name()


# -- dead workers ---------------------------------------------------------------------------------


def watch(*readings):
    """Return a leases with readings of one member, as (moment, beats) or (moment, beats, well)."""
    leases = LeaseWatch(LEASE, BLIND)
    for at, beats, *well in readings:
        seen = {"other": beats}
        leases.observe(seen, asked=at, answered=at, well=well[0] if well else True)
    return leases


def every_second(first, last, beats, *well):
    return [(float(at), beats, *well) for at in range(first, last + 1)]


def test_silence_is_counted_from_when_a_counter_was_first_seen():
    assert watch(*every_second(100, 103, 1), *every_second(104, 110, 2)).silence("other") == 6
    assert not watch(*every_second(100, 106, 1)).is_abandoned("other")
    assert watch(*every_second(100, 107, 1)).is_abandoned("other")


def test_the_silent_are_those_that_were_it_for_so_long():
    leases = watch(*every_second(100, 112, 1))
    assert leases.silent(12.0) == ["other"]
    assert leases.silent(12.5) == []


def test_one_that_came_back_under_its_name_begins_anew():
    leases = watch(*every_second(100, 107, 1))
    leases.observe({}, asked=108.0, answered=108.0)
    assert (leases.is_abandoned("other"), leases.silent(0.0)) == (False, [])
    leases.observe({"other": 1}, asked=109.0, answered=109.0)
    assert not leases.is_abandoned("other")


def test_who_was_blind_begins_anew_and_finds_the_dead_a_lease_later():
    leases = watch(*every_second(100, 105, 1), *every_second(110, 116, 1))
    assert leases.silence("other") == 6
    leases.observe({"other": 1}, asked=117.0, answered=117.0)
    assert leases.is_abandoned("other")


def test_a_gap_that_is_no_longer_than_it_may_be_is_not_blindness():
    assert watch((100.0, 1), (104.0, 1), (108.0, 1)).is_abandoned("other")
    assert not watch((100.0, 1), (104.1, 1), (108.2, 1)).is_abandoned("other")


def test_nobody_dies_for_one_whose_own_heartbeats_do_not_get_through():
    unwell = watch(*every_second(100, 130, 1, False))
    assert not unwell.is_abandoned("other")
    again = watch(*every_second(100, 130, 1, False), *every_second(131, 136, 1))
    assert not again.is_abandoned("other")
    assert watch(*every_second(100, 130, 1, False), *every_second(131, 137, 1)).is_abandoned(
        "other"
    )
