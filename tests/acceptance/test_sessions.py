"""The session store, under traffic and trouble, and one statement of its README at a time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import Field

from handlers.sessions.entities import Block, LoginAttempt, LogoutRequest, Session, SessionEnd
from handlers.sessions.handlers import (
    ATTEMPTS_ALLOWED,
    SHAPE,
    ActiveSessions,
    LoginAttempts,
    active_sessions,
    app,
)
from handlers.sessions.traffic import Traffic
from streamkit import App, Entity, Expired
from streamkit.kinds.preflight import findings
from streamkit.testing import Harness, Trouble, trial
from tests.seeds import seeds

HarnessOf = Callable[..., Harness]


@pytest.fixture
def store(harness_of: HarnessOf) -> Harness:
    return harness_of(app, shape=SHAPE)


def now_in(store: Harness) -> datetime:
    return datetime.fromtimestamp(store.world.clock.time(), UTC)


def a_session(store: Harness, token: str, *, hours: float = 10, username: str = "ann") -> Session:
    now = now_in(store)
    expires = now + timedelta(hours=hours)
    return Session(token=token, username=username, created_at=now, expires=expires)


def a_request(store: Harness, username: str = "ann") -> LogoutRequest:
    now = now_in(store)
    return LogoutRequest(username=username, at=now, expires=now + timedelta(days=1))


def attempts(store: Harness, count: int, *, first: int = 0) -> list[LoginAttempt]:
    now = now_in(store)
    expires = now + timedelta(days=1)
    return [
        LoginAttempt(username="ann", attempt_id=str(first + n), at=now, expires=expires)
        for n in range(count)
    ]


def active(store: Harness, username: str = "ann") -> int:
    return store._run(active_sessions(store.table, username, now_in(store)))


@pytest.mark.parametrize("seed", seeds(3))
def test_the_store_is_what_its_history_says(seed: int) -> None:
    traffic, trouble = Traffic(users=20), Trouble(pause=20)
    ran = trial(app, traffic, shape=SHAPE, seed=seed, acts=120, trouble=trouble)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_the_app_fits_its_table_without_a_finding(store: Harness) -> None:
    assert findings(app, store.tables) == []


def test_a_scan_of_sessions_finds_nothing_that_streamkit_keeps(store: Harness) -> None:
    store.put(session := a_session(store, "s1"))
    store.settle()

    assert store.scan(Session) == [session]


def test_an_expired_session_is_told_from_one_that_was_logged_out(store: Harness) -> None:
    store.put(a_session(store, "s1", hours=1), a_session(store, "s2", hours=1))
    store.delete(Session.key(token="s1"))
    store.settle()
    store.stop()
    store.advance("2h")
    assert store.expire() == 2  # the other one, and the count of its hour
    store.settle()

    ends = {end.token: end.reason for end in store.scan(SessionEnd)}
    assert ends == {"s1": "logged out", "s2": "expired"}


def test_what_has_expired_does_not_count_though_nothing_was_swept(store: Harness) -> None:
    store.put(*(a_session(store, f"s{n}", hours=n) for n in (1, 2, 5)))
    store.settle()
    assert active(store) == 3
    store.stop()
    store.advance("4h")

    assert active(store) == 1
    assert len(store.scan(Session)) == 3


def test_a_session_that_lives_on_moves_to_another_hour(store: Harness) -> None:
    session = a_session(store, "s1", hours=1)
    store.put(session)
    store.settle()
    store.put(session.model_copy(update={"expires": session.expires + timedelta(hours=3)}))
    store.settle()

    assert sorted(group.sessions for group in store.scan(ActiveSessions)) == [0, 1]
    assert active(store) == 1


def test_logging_out_everywhere_ends_all_sessions_of_the_user_and_nobody_elses(
    store: Harness,
) -> None:
    """More than fit into the change's own commit."""
    store.put(*(a_session(store, f"ann{n}") for n in range(70)))
    store.put(bob := a_session(store, "bob", username="bob"), a_request(store))
    store.settle()

    assert store.scan(Session) == [bob]
    assert len(store.scan(SessionEnd)) == 70
    assert (active(store), active(store, "bob")) == (0, 1)


def test_a_session_made_after_the_request_stays(store: Harness) -> None:
    store.put(a_session(store, "old"), a_request(store))
    store.advance("2s")
    store.put(new := a_session(store, "new"))
    store.settle()

    assert store.scan(Session) == [new]


def test_a_session_that_the_index_shows_late_is_ended_at_its_next_sign_of_life(
    store: Harness,
) -> None:
    store.settle()
    store.world.engine.index_lag = 60.0
    session = a_session(store, "s1")
    store.put(session)
    store.settle()
    store.put(a_request(store))
    store.settle()
    assert store.scan(Session) == [session]
    store.put(session.model_copy(update={"expires": session.expires + timedelta(minutes=1)}))
    store.settle()

    assert store.scan(Session) == []


def test_a_user_is_blocked_once_when_an_hour_has_too_many_attempts(store: Harness) -> None:
    store.put(*attempts(store, ATTEMPTS_ALLOWED))
    store.settle()
    assert store.scan(Block) == []
    store.put(*attempts(store, 1, first=ATTEMPTS_ALLOWED))
    store.settle()
    (blocked,) = store.scan(Block)
    store.delete(blocked.item_key)  # somebody lifts it
    store.put(*attempts(store, 3, first=ATTEMPTS_ALLOWED + 1))
    store.settle()

    assert store.scan(Block) == []
    (group,) = store.scan(LoginAttempts)
    assert group.attempts == ATTEMPTS_ALLOWED + 4


def test_attempts_of_two_hours_do_not_add_up(store: Harness) -> None:
    store.put(*attempts(store, ATTEMPTS_ALLOWED))
    store.advance("1h")
    store.put(*attempts(store, ATTEMPTS_ALLOWED, first=ATTEMPTS_ALLOWED))
    store.settle()

    assert [group.attempts for group in store.scan(LoginAttempts)] == [ATTEMPTS_ALLOWED] * 2
    assert store.scan(Block) == []


def test_check_warns_of_a_ttl_attribute_that_holds_a_date_as_text(harness_of: HarnessOf) -> None:
    class DatedSession(Entity, pk="{token}"):
        token: str = Field(alias="SessionToken")
        expires: datetime = Field(alias="TTL")

    dated = App("dated", table="SessionStore")

    @dated.on
    def ended(change: Expired[DatedSession]) -> None:
        raise AssertionError(change)

    store = harness_of(dated, shape=SHAPE)
    (finding,) = findings(dated, store.tables)
    assert finding.severity == "warning"
    assert "expires is the TTL attribute 'TTL' but is not stored as a number" in finding.text

    moment = now_in(store) - timedelta(days=1)
    store.put(DatedSession(token="s1", expires=moment))
    assert store.expire() == 0
