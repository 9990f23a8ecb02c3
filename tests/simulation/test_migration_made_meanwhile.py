"""Items that old code makes where none was: it has written what is in them, and nothing else."""

from functools import partial

import anyio
import pytest

from streamkit import App, Entity, Remove, Set
from streamkit.migrate.verify.mending import list_errors
from tests.simulation.test_migration_merges import _until
from tests.simulation.test_migration_old_writers import DAY, play


class Profile(Entity, pk="CUSTOMER#{user}", sk="PROFILE"):
    user: str
    email: str = ""
    name: str = ""
    visits: int = 0


class Extra(Entity, pk="CUSTOMER#{user}", sk="EXTRA"):
    user: str
    bio: str = ""
    likes: int = 0
    phone: str | None = None


class Customer(Entity, pk="CUSTOMER#{user}", sk="CUSTOMER"):
    user: str
    email: str | None = None
    name: str | None = None
    visits: int | None = None
    bio: str | None = None
    likes: int | None = None
    phone: str | None = None


def together(profile: Profile | None, extra: Extra | None) -> Customer | None:
    found = [one.model_dump() for one in (profile, extra) if one is not None]
    return Customer(**{n: v for one in found for n, v in one.items()}) if found else None


def apart(customer: Customer) -> list[Profile | Extra]:
    said = customer.model_dump(exclude_none=True)
    return [
        kind(**{n: v for n, v in said.items() if n in kind.model_fields})
        for kind in (Profile, Extra)
        if said.keys() & kind.model_fields.keys() - {"user"}
    ]


def merge(*, reverse=True, counters=("visits", "likes")):
    app = App("crm", table="Crm", entities=[Profile, Extra, Customer])
    named = {"reverse": apart} if reverse else {}
    app.migration("0001", Profile, mode="merge", counters=counters, **named)(together)
    return app


EXTRA = Extra(user="ann", bio="b", likes=1)


async def say(site, entity, **said):
    for name, value in said.items():
        await site.aws.dynamodb.update_item(
            TableName="Crm",
            Key=entity(user="ann").item_key.wire(site.schema),
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":v": {"S": value}},
        )


def there(site):
    """Return what each item says, by its sort key."""
    return {
        item["SK"]["S"]: {
            n: next(iter(v.values()))
            for n, v in item.items()
            if n not in ("PK", "SK") and not n.startswith("_sk")
        }
        for item in site.left()
    }


async def texts(site):
    return [error.text for error in await list_errors(site.app, site.aws, "0001")]


async def made_beside_a_write(site, **more):
    await say(site, Profile, email="old@x", **more)
    await say(site, Customer, name="Ann", phone="123")


MADE = {"following": True, "until": "ready"}


@pytest.mark.parametrize("following", [True, False])
def test_what_only_a_default_fills_in_was_not_written_by_old_code(following):
    async def then(site):
        await site.run("switch")
        assert await site.errors() == []
        assert there(site)["CUSTOMER"]["name"] == "Ann"
        assert there(site)["PROFILE"] == {"email": "old@x", "name": "Ann"}
        assert there(site)["EXTRA"]["phone"] == there(site)["CUSTOMER"]["phone"] == "123"

    play(merge(), [EXTRA], made_beside_a_write, then, following=following, until="ready")


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_decision_about_a_field_takes_nothing_of_another_source(side):
    async def then(site):
        (text,) = await texts(site)
        assert text == "both sides wrote name: written at its old key, written at its new key"
        assert await site.retry(take=side) == (1, 0)
        name = "" if side == "old" else "Ann"
        assert there(site)["CUSTOMER"]["name"] == there(site)["PROFILE"]["name"] == name
        assert there(site)["EXTRA"]["phone"] == there(site)["CUSTOMER"]["phone"] == "123"

    play(merge(), [EXTRA], partial(made_beside_a_write, name=""), then, **MADE)


async def deleted_beside_a_write(site):
    await site.delete(Profile(user="ann"))
    await say(site, Customer, phone="123")


async def put_anew_beside_a_write(site):
    await site.put(Profile(user="ann", email="new@x"))
    await say(site, Customer, phone="123")


@pytest.mark.parametrize("write", [deleted_beside_a_write, put_anew_beside_a_write])
def test_a_source_that_goes_or_is_put_anew_says_nothing_of_a_field_that_another_one_gets(write):
    async def then(site):
        assert await texts(site) == []
        assert there(site)["EXTRA"]["phone"] == there(site)["CUSTOMER"]["phone"] == "123"

    play(merge(), [EXTRA, Profile(user="ann", email="a@x")], write, then, **MADE)


async def all_deleted_beside_a_write(site):
    await site.delete(Profile(user="ann"))
    await say(site, Customer, phone="123")


def test_where_all_sources_are_gone_a_new_field_of_any_of_them_is_a_conflict():
    async def then(site):
        (text,) = await texts(site)
        assert "deleted at its old key" in text
        assert "phone" in text.partition("`--take old` removes ")[2]

    items = [Profile(user="ann", email="a@x")]
    play(merge(), items, all_deleted_beside_a_write, then, **MADE)


async def both_count(site):
    for entity in (Profile, Customer):
        await site.update(entity(user="ann"), "ADD visits :v", {"N": "2"})


def test_both_may_add_to_a_counter_of_a_source_that_was_made_since():
    async def then(site):
        assert await texts(site) == []
        assert there(site)["PROFILE"]["visits"] == there(site)["CUSTOMER"]["visits"] == "4"

    play(merge(), [EXTRA], both_count, then, **MADE)


# -- one item, and parts ---------------------------------------------------------------------------


class Room(Entity, pk="ROOM#{user}", sk="OLD"):
    user: str
    start: str | None = None
    end: str | None = None


class NewRoom(Entity, pk="ROOM#{user}", sk="NEW"):
    user: str
    start: str | None = None
    end: str | None = None


def room(room: Room) -> NewRoom:
    start, _, end = (room.start or "").partition("-")
    given = room.start is not None or room.end is not None
    hours = {"start": start or "0", "end": room.end or end or "24"} if given else {}
    return NewRoom(user=room.user, **hours)


def room_back(room: NewRoom) -> Room:
    return Room(**room.model_dump())


def rekey(reverse=room_back):
    app = App("crm", table="Crm", entities=[Room, NewRoom])
    app.migration("0001", Room, mode="rekey", reverse=reverse)(room)
    return app


async def both_write_a_room(site):
    await say(site, Room, start="8")
    await say(site, NewRoom, end="10")


def test_a_default_that_comes_with_another_field_was_not_written_by_old_code():
    async def then(site):
        assert await texts(site) == []
        assert (
            there(site)["NEW"] == there(site)["OLD"] == {"user": "ann", "start": "8", "end": "10"}
        )

    play(rekey(), [Room(user="ann")], both_write_a_room, then, **MADE)


def hours_back(room: NewRoom) -> Room:
    """Bring back both in one attribute, which old code has written."""
    return Room(user=room.user, start=room.start and f"{room.start}-{room.end}")


@pytest.mark.parametrize("reverse", [None, hours_back])
def test_what_cannot_come_back_beside_what_old_code_wrote_is_a_conflict(reverse):
    async def then(site):
        (text,) = await texts(site)
        assert text.startswith("both sides wrote end: ")

    play(rekey(reverse), [Room(user="ann")], both_write_a_room, then, **MADE)


async def put_anew_beside_a_room(site):
    await site.put(Room(user="ann", start="9"))
    await say(site, NewRoom, end="10", start="11")


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_decision_names_what_it_takes_away(side):
    async def then(site):
        (text,) = await texts(site)
        assert text.endswith("`--take new` removes more")
        assert await site.retry(take=side) == (1, 0)
        assert ("more" in str(site.left())) is (side == "old")

    async def write(site):
        await put_anew_beside_a_room(site)
        await say(site, Room, more="by old code")

    play(rekey(), [Room(user="ann", start="8", end="12")], write, then, **MADE)


class Account(Entity, pk="ACCOUNT#{user}", sk="ACCOUNT"):
    user: str
    email: str | None = None
    bio: str | None = None
    phone: str | None = None


class Contact(Entity, pk="ACCOUNT#{user}", sk="CONTACT#{kind}"):
    user: str
    kind: str
    email: str | None = None
    bio: str | None = None
    phone: str | None = None


TEXT = {"user": "ann", "kind": "text"}


def contacts(
    user: str, email: str | None = None, bio: str | None = None, phone: str | None = None
) -> list[Contact | Remove[Account]]:
    parts = [Contact(user=user, kind="mail", email=email)]
    if bio is not None or phone is not None:
        parts.append(Contact(user=user, kind="text", bio=bio, phone=phone))
    return [*parts, Remove("email", "bio", "phone")]


def account_back(account: Account, parts: list[Contact]) -> Set[Account]:
    said = dict.fromkeys(("email", "bio", "phone"))
    for part in parts:
        said |= part.model_dump(exclude={"user", "kind"}, exclude_none=True)
    return Set(**said)


def split():
    app = App("crm", table="Crm", entities=[Account, Contact])
    app.migration(
        "0001",
        Account,
        mode="split",
        reverse=account_back,
        collect=lambda account: Contact.query(user=account.user),
        source=lambda part: Account.key(user=part.user),
    )(contacts)
    return app


ACCOUNT = Account(user="ann", email="a@x")


async def both_make_a_part(site, **more):
    await say(site, Account, bio="by old code")
    await site.put(Contact(**TEXT, phone="123", **more))


def test_of_a_part_that_both_make_each_field_is_as_one_of_them_wrote_it():
    async def then(site):
        assert await texts(site) == []
        said = {"bio": "by old code", "phone": "123"}
        assert there(site)["CONTACT#text"] == {**TEXT, **said}
        assert there(site)["ACCOUNT"] == {"user": "ann", "email": "a@x", **said}

    play(split(), [ACCOUNT], both_make_a_part, then, **MADE)


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_decision_about_a_field_of_a_part_that_both_made_keeps_its_other_fields(side):
    async def then(site):
        assert [text.partition(":")[0] for text in await texts(site)] == ["both sides wrote bio"]
        assert await site.retry(take=side) == (1, 0)
        said = {"bio": f"by {side} code", "phone": "123"}
        assert there(site)["CONTACT#text"] == {**TEXT, **said}
        assert there(site)["ACCOUNT"] == {"user": "ann", "email": "a@x", **said}

    play(split(), [ACCOUNT], partial(both_make_a_part, bio="by new code"), then, **MADE)


# -- stubs -----------------------------------------------------------------------------------------


async def nothing(_site):
    """Write nothing."""


@pytest.mark.parametrize("name", [None, ""])
def test_at_the_end_too_a_source_that_is_made_says_only_what_is_in_it(name):
    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await _until(site, "closing")
            more = {} if name is None else {"name": name}
            await say(site, Customer, name="Ann", phone="123")
            await say(site, Profile, email="old@x", **more)
            await anyio.sleep(60)
            assert len(await texts(site)) == len(more)
            assert await site.retry(take="old") == (len(more), 0)
            assert there(site)["CUSTOMER"]["name"] == more.get("name", "Ann")
            assert there(site)["CUSTOMER"]["email"] == "old@x"
            assert there(site)["CUSTOMER"]["phone"] == "123"

    play(merge(), [EXTRA], nothing, then)
