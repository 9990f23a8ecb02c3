"""The command that a report ends with is the one that a person needs, and it exists."""

from typing import Annotated

from streamkit import Aggregate, App, Count, Entity, Inserted, Query, Set
from streamkit.cli.following import after_discard, after_parked
from streamkit.core.parking import Parked


class User(Entity, pk="USER#{user}", sk="USER"):
    user: str
    name: str = ""


class Member(Entity, pk="TEAM#{team}", sk="MEMBER#{user}"):
    team: str
    user: str
    name: str = ""


class Mail(Entity, pk="MAIL#{name}", sk="MAIL"):
    name: str


def app_of_all_kinds() -> App:
    app = App("teams", table="Teams")

    @app.aggregate
    class Members(Aggregate[Member], pk="TEAM#{team}", sk="COUNT"):
        team: str
        people: Annotated[int, Count()] = 0

    def copies(user: User) -> Query[Member]:
        return Member.query(team=user.user)

    @app.mirror(copies=copies, source=lambda copy: User.key(user=copy.user))
    def copy_name(user: User, copy: Member) -> Set[Member]:
        return Set(copy.item_key, name=user.name)

    @app.derive
    def mailOf(user: User) -> Mail:
        return Mail(name=user.name)

    @app.on
    def told(change: Inserted[User]) -> None:
        pass

    return app


def after(*handlers: str) -> list[tuple[str, ...]]:
    return [words for _, words in after_discard(app_of_all_kinds(), set(handlers))]


def test_a_discarded_change_is_followed_by_what_mends_its_handlers_items() -> None:
    assert after("Members") == [("aggregate rebuild", "Members")]
    assert after("told") == after("(unreadable)") == after() == []
    touch = ("migrate new", "copy_name_again", "--mode", "touch", "--entity")
    assert after("copy_name") == [(*touch, "User")]
    derive = ("migrate new", "mailof_again", "--mode", "derive", "--entity", "User")
    assert after("mailOf") == [derive]


def test_what_is_wrong_after_a_discard_is_said_with_the_handlers_name() -> None:
    for text, _ in after_discard(app_of_all_kinds(), {"Members", "copy_name", "mailOf"}):
        assert text.split()[0] == "Members" or "copy_name" in text or "mailOf" in text


def test_what_is_parked_beside_fan_outs_that_are_served_is_looked_at_and_retried() -> None:
    def followed(*queues: str) -> list[tuple[str, ...]]:
        return list(
            after_parked(
                [Parked(queue, "told", "User", "shard", "1", 0) for queue in queues], {"served"}
            )
        )

    assert followed("served", "one", "two") == [
        ("parked show", "--queue", "one"),
        ("parked redrive", "--all"),
    ]
    assert followed("served") == [("fan-outs list",)]
    assert followed() == []
