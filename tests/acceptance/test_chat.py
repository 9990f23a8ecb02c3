"""The chat, under traffic and trouble, and one statement of its README at a time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from handlers.chat.entities import EmailLogin, Membership, Message, NameLogin, User
from handlers.chat.handlers import SHAPE, ChatActivity, ServerMembers, app
from handlers.chat.traffic import Traffic
from streamkit.kinds.preflight import findings
from streamkit.local.engine import CallRecord
from streamkit.testing import Harness, trial
from tests.seeds import seeds

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def chat(harness_of: Callable[..., Harness]) -> Harness:
    return harness_of(app, shape=SHAPE)


def ann(username: str = "ann", **fields: object) -> User:
    given = {"user_id": "1", "username": username, "email": "ann@example.com", **fields}
    return User.model_validate(given)


def a_message(number: int, minute: int, text: str = "hello", user_id: str = "1") -> Message:
    sent_at = NOON + timedelta(minutes=minute)
    return Message(chat_id="c", sent_at=sent_at, number=number, user_id=user_id, text=text)


def names(chat: Harness) -> set[str]:
    return {membership.user_name for membership in chat.scan(Membership)}


@pytest.mark.parametrize("seed", seeds(3))
def test_the_chat_is_what_its_history_says(seed: int) -> None:
    ran = trial(app, Traffic(), shape=SHAPE, seed=seed, acts=130)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_the_app_fits_its_table_without_a_finding(chat: Harness) -> None:
    assert findings(app, chat.tables) == []


# -- logins ------------------------------------------------------------------------------------


def test_a_user_is_found_by_what_it_is_called_now_and_not_by_what_it_was(chat: Harness) -> None:
    def by_email(email: str) -> list[str]:
        query = EmailLogin.query(index=EmailLogin.by_email, email=email)
        return [login.user_id for login in chat.query(query)]

    def by_username(username: str) -> list[str]:
        query = NameLogin.query(index=NameLogin.by_username, username=username)
        return [login.user_id for login in chat.query(query)]

    chat.put(ann())
    chat.settle()
    assert (by_email("ann@example.com"), by_username("ann")) == (["1"], ["1"])

    chat.put(ann("anna", email="anna@example.com"))
    chat.settle()
    assert (by_email("ann@example.com"), by_username("ann")) == ([], [])
    assert (by_email("anna@example.com"), by_username("anna")) == (["1"], ["1"])


def test_the_logins_of_a_user_who_signs_off_go_and_the_memberships_stay(chat: Harness) -> None:
    chat.put(ann(), Membership(server_id="s", user_id="1"))
    chat.settle()
    chat.delete(ann().item_key)
    chat.settle()
    assert [*chat.scan(EmailLogin), *chat.scan(NameLogin)] == []
    assert names(chat) == {"ann"}


# -- memberships -------------------------------------------------------------------------------


def test_a_renamed_user_is_renamed_on_every_server_and_keeps_its_roles(chat: Harness) -> None:
    chat.put(ann())
    for number in range(60):
        chat.put(Membership(server_id=f"s{number}", user_id="1", role="moderator"))
    chat.settle()
    chat.put(ann("anna"))
    chat.settle()
    assert names(chat) == {"anna"}
    assert {membership.role for membership in chat.scan(Membership)} == {"moderator"}
    servers = Membership.query(index=Membership.by_user, user_id="1")
    assert len(chat.query(servers)) == 60


def test_who_joins_by_an_old_name_is_called_by_the_new_one(chat: Harness) -> None:
    chat.put(ann("anna"))
    chat.settle()
    chat.put(Membership(server_id="s", user_id="1", user_name="ann"))
    chat.settle()
    assert names(chat) == {"anna"}


def test_a_click_wakes_nobody(chat: Harness) -> None:
    chat.put(ann(), Membership(server_id="s", user_id="1"))
    chat.settle()
    calls: list[CallRecord] = []
    chat.world.engine.observers.append(calls.append)
    chat.put(ann(click=1))
    chat.settle()
    made = {call.operation for call in calls}
    assert "TransactWriteItems" not in made
    assert "Query" not in made


def test_members_are_counted_as_they_come_are_promoted_and_go(chat: Harness) -> None:
    def counted() -> tuple[int, int]:
        members = chat.get(ServerMembers.key(server_id="s"))
        assert members is not None
        return members.users, members.moderators

    chat.put(*(Membership(server_id="s", user_id=str(number)) for number in range(3)))
    chat.settle()
    assert counted() == (3, 0)
    chat.put(Membership(server_id="s", user_id="0", role="moderator"))
    chat.settle()
    assert counted() == (3, 1)
    chat.delete(Membership.key(server_id="s", user_id="0"))
    chat.settle()
    assert counted() == (2, 0)


# -- messages ----------------------------------------------------------------------------------


def activity(chat: Harness) -> tuple[object, ...]:
    found = chat.get(ChatActivity.key(chat_id="c"))
    assert found is not None
    return found.messages, found.last_at, found.last_by, found.last_text


def test_a_chat_shows_its_last_message_whatever_the_order_of_arrival(chat: Harness) -> None:
    chat.put(a_message(2, 5, "later", "2"), a_message(1, 0, "earlier"))
    chat.settle()
    assert activity(chat) == (2, NOON + timedelta(minutes=5), "2", "later")


def test_when_the_last_message_is_deleted_the_one_before_it_is_the_last(chat: Harness) -> None:
    chat.put(*(a_message(number, number, f"text {number}") for number in range(5)))
    chat.settle()
    chat.delete(a_message(4, 4).item_key)
    chat.put(a_message(3, 3, "edited"))
    chat.settle()
    assert activity(chat) == (4, NOON + timedelta(minutes=3), "1", "edited")


def test_a_message_is_found_by_its_number_and_a_chat_reads_newest_first(chat: Harness) -> None:
    chat.put(*(a_message(number, 10 - number) for number in range(1, 4)))
    (found,) = chat.query(Message.query(index=Message.by_number, number=2))
    assert found == a_message(2, 8)
    newest = Message.query(chat_id="c").reverse().limit(2)
    assert [message.number for message in chat.query(newest)] == [1, 2]
