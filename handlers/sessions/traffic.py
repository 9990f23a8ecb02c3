"""The application of the demo: users log in, stay, leave, and passwords are guessed.

What must follow is computed from the log of its writes: which sessions there were, how long each
was to live in the end, who deleted it, who asked to be logged out everywhere.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import anyio

from handlers.sessions.entities import Block, LoginAttempt, LogoutRequest, Session, SessionEnd
from handlers.sessions.handlers import (
    ATTEMPTS_ALLOWED,
    BLOCKED,
    HOUR,
    LIFETIME,
    ActiveSessions,
    LoginAttempts,
)
from streamkit import Delete, Put, Set, bucket, present
from streamkit.testing import Comparison, Final, Writer

Reason = Literal["expired", "logged out"]

_NEVER = datetime.min.replace(tzinfo=UTC)


class Traffic:
    """Users of a site.

    Args:
        users: how many there are.
        soon: seconds after which short sessions expire, at most.
    """

    def __init__(self, *, users: int = 40, soon: float = 4.0) -> None:
        self.users = [f"user{number:02d}" for number in range(users)]
        self._soon = soon
        self._tokens: list[str] = []
        self._numbers = 0
        self._asking = anyio.Lock()

    async def open(self, writer: Writer) -> None:
        """Let half of the users be logged in."""
        for username in self.users[::2]:
            await self._log_in(writer, username)

    async def act(self, writer: Writer) -> None:
        """Do one small thing that a user does."""
        username = writer.rng.choice(self.users)
        dice = writer.rng.random()
        if dice < 0.4:
            await self._log_in(writer, username)
        elif dice < 0.6:
            await self._stay(writer)
        elif dice < 0.72:
            await self._log_out(writer)
        elif dice < 0.76:
            await self._log_out_everywhere(writer, username)
        else:
            await self._fail(writer, writer.rng.choice(self.users[:8]))

    async def _log_in(self, writer: Writer, username: str) -> None:
        session = Session(
            token=f"{writer.rng.getrandbits(64):016x}",
            username=username,
            created_at=writer.now,
            expires=self._expiry(writer),
        )
        await writer.put(session)
        self._tokens.append(session.token)

    async def _stay(self, writer: Writer) -> None:
        """Be seen again: the session lives on, or is cut short, if it is there."""
        if self._tokens:
            token = self._take(writer)
            extended = Set(Session.key(token=token), expires=self._expiry(writer))
            await writer.write(extended.only_if(present))
            self._tokens.append(token)

    async def _log_out(self, writer: Writer) -> None:
        if self._tokens:
            gone = Delete(Session.key(token=self._take(writer)))
            await writer.write(gone.only_if(present))

    async def _log_out_everywhere(self, writer: Writer, username: str) -> None:
        async with self._asking:  # so that no request takes the place of a later one
            now = writer.now
            await writer.put(LogoutRequest(username=username, at=now, expires=now + LIFETIME))

    async def _fail(self, writer: Writer, username: str) -> None:
        self._numbers += 1
        now = writer.now
        attempt = LoginAttempt(
            username=username, attempt_id=str(self._numbers), at=now, expires=now + LIFETIME
        )
        await writer.put(attempt)

    def _take(self, writer: Writer) -> str:
        """Take a token, so that no two writers write to one session at once."""
        return self._tokens.pop(writer.rng.randrange(len(self._tokens)))

    def _expiry(self, writer: Writer) -> datetime:
        rng = writer.rng
        if rng.random() < 0.4:
            return writer.now + timedelta(seconds=rng.uniform(1, self._soon))
        return writer.now + rng.uniform(0.1, 1) * LIFETIME

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        lives = _lives(final)
        sessions = {session.token: session.expires for session in final[Session]}
        yield Comparison.of(
            "sessions",
            sessions,
            {token: life.expires for token, life in lives.items() if not life.ends},
        )
        ends = {end.token: end.reason for end in final[SessionEnd]}
        yield Comparison.of(
            "ends of sessions",
            ends,
            {token: _one(life.ends, ends.get(token)) for token, life in lives.items() if life.ends},
        )
        yield _active(final)
        yield from _attempts(final)


@dataclass
class _Life:
    """A session as the application knows it: until when, and how it may have ended."""

    session: Session
    expires: datetime
    ends: list[Reason] = field(default_factory=list)


def _lives(final: Final) -> dict[str, _Life]:
    """Read the sessions' lives from what the application wrote."""
    lives: dict[str, _Life] = {}
    asked: dict[str, datetime] = {}
    for written in final.log:
        match written.effect:
            case Put(entity=Session() as session):
                lives[session.token] = _Life(session, session.expires)
            case Put(entity=LogoutRequest() as request):
                asked[request.username] = request.at
            case Set(key=key, fields=fields):
                lives[key.pk].expires = fields["expires"].replace(microsecond=0)
            case Delete(key=key):
                lives[key.pk].ends = ["logged out"]
    for life in lives.values():
        if life.ends:
            continue
        if life.expires <= final.now:
            life.ends.append("expired")
        if asked.get(life.session.username, _NEVER) >= life.session.created_at:
            life.ends.append("logged out")
    return lives


def _one(possible: list[Reason], found: Reason | None) -> Reason:
    """Return what was found if it is possible: a session may have two possible ends."""
    return found if found in possible else possible[0]


def _active(final: Final) -> Comparison:
    """Compare the hours that are asked for; those that have passed are gone, or will be."""
    found = {(group.username, group.hour): group.sessions for group in final[ActiveSessions]}
    wanted = Counter(
        (session.username, bucket(session.expires, "hour", tz="UTC")) for session in final[Session]
    )
    asked_for = {group: n for group, n in found.items() if n and group[1] + HOUR > final.now}
    return Comparison.of("active sessions", asked_for, wanted)


def _attempts(final: Final) -> Iterator[Comparison]:
    """Compare the counts of failed attempts, and the blocked users."""
    counts = Counter(
        (attempt.username, bucket(attempt.at, "hour", tz="UTC")) for attempt in final[LoginAttempt]
    )
    alive = {group: n for group, n in counts.items() if group[1] + BLOCKED > final.now}
    yield final.compare(
        LoginAttempts,
        [LoginAttempts(username=name, hour=hour, attempts=n) for (name, hour), n in alive.items()],
        ignore=("expires",),
    )
    blocked = [group for group, n in alive.items() if n > ATTEMPTS_ALLOWED]
    yield final.compare(
        Block,
        [Block(username=name, hour=hour, expires=hour + BLOCKED) for name, hour in blocked],
    )
