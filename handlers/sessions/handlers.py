"""What follows from what in the session store: counts by hour, ends, log-outs and blocks."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from handlers.sessions.entities import Block, LoginAttempt, LogoutRequest, Session, SessionEnd
from streamkit import (
    Aggregate,
    App,
    Attr,
    Count,
    Delete,
    EpochSeconds,
    Expired,
    IndexShape,
    Inserted,
    Key,
    Modified,
    Put,
    Query,
    Removed,
    Table,
    TableShape,
    Until,
    absent,
    bucket,
    crossed,
)

HOUR = timedelta(hours=1)
LIFETIME = timedelta(hours=24)
"""How far ahead a session expires at most."""
ATTEMPTS_ALLOWED = 5
"""Failed attempts in an hour that lead to nothing."""
BLOCKED = 2 * HOUR
"""How long a block holds, from the beginning of the hour of its attempts."""
ENDS_KEPT = timedelta(days=90)

app = App("sessions", table="SessionStore", type_attribute="type", entities=[SessionEnd, Block])

SHAPE = TableShape(
    pk="SessionToken", sk=None, ttl="TTL", indexes={"UserIndex": IndexShape(project=())}
)
"""No sort key, and an index that holds keys only: a log-out needs no more."""


# -- active sessions ---------------------------------------------------------------------------


@app.aggregate
class ActiveSessions(Aggregate[Session], pk="ACTIVE#{username}#{hour:%Y-%m-%dT%H}"):
    """How many of a user's sessions expire within an hour.

    What is over drops out by itself: nobody asks for an hour that has passed, and the item goes
    when the hour does, however late DynamoDB sweeps the sessions.
    """

    username: str
    hour: datetime
    sessions: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("hour", keep=HOUR)] = Field(
        default=None, alias="TTL"
    )

    @classmethod
    def group(cls, session: Session) -> Key["ActiveSessions"]:
        """Count by user and the hour of expiry."""
        hour = bucket(session.expires, "hour", tz="UTC")
        return cls.key(username=session.username, hour=hour)


async def active_sessions(table: Table, username: str, now: datetime) -> int:
    """Return how many sessions a user has, in one call, expired ones left out.

    A session counts to the end of the hour in which it expires, if it is not swept before.
    """
    this_hour = bucket(now, "hour", tz="UTC")
    hours = range(LIFETIME // HOUR + 1)
    keys = [ActiveSessions.key(username=username, hour=this_hour + n * HOUR) for n in hours]
    return sum(group.sessions for group in (await table.batch_get(keys)).values())


# -- ends --------------------------------------------------------------------------------------


@app.on
def note_end(change: Removed[Session] | Expired[Session]) -> Put[SessionEnd]:
    """Write down how a session ended: a deletion by TTL is told apart from others."""
    end = SessionEnd(
        token=change.old.token,
        username=change.old.username,
        reason="expired" if isinstance(change, Expired) else "logged out",
        at=change.created_at,
        expires=change.created_at + ENDS_KEPT,
    )
    return Put(end).only_if(absent, otherwise="omit")


def sessions_of(change: Inserted[LogoutRequest] | Modified[LogoutRequest]) -> Query[Session]:
    """Return the sessions of the user who asked."""
    return Session.query(index=Session.by_user, username=change.new.username)


@app.fan_out(sessions_of)
def log_out_everywhere(
    change: Inserted[LogoutRequest] | Modified[LogoutRequest], to: Key[Session]
) -> Delete[Session]:
    """End a session that was made no later than the request; the index gives only its key.

    The condition looks at the session itself, so that one made since then stays, and no read is
    needed.
    """
    asked = int(change.new.at.timestamp())
    return Delete(to).only_if(Attr("CreatedAt").lte(asked), otherwise="omit")


@app.on
async def log_out_late(
    change: Inserted[Session] | Modified[Session], table: Table
) -> Delete[Session] | None:
    """End a session that the log-out has missed, because the index trails the table.

    The read comes after the session was written. So a request that is made after the read finds
    the session in the index, if that trails less than the stream; nothing has to be checked at the
    commit.
    """
    request = await table.get(LogoutRequest.key(username=change.new.username), check=False)
    if request is None or request.at < change.new.created_at:
        return None
    return Delete(change.new.item_key)


# -- attempts ----------------------------------------------------------------------------------


@app.aggregate
class LoginAttempts(Aggregate[LoginAttempt], pk="ATTEMPTS#{username}#{hour:%Y-%m-%dT%H}"):
    """How many attempts to log in as a user failed within an hour."""

    username: str
    hour: datetime
    attempts: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("hour", keep=BLOCKED)] = Field(
        default=None, alias="TTL"
    )

    @classmethod
    def group(cls, attempt: LoginAttempt) -> Key["LoginAttempts"]:
        """Count by user and hour."""
        return cls.key(username=attempt.username, hour=bucket(attempt.at, "hour", tz="UTC"))


@app.on(when=crossed("attempts", above=ATTEMPTS_ALLOWED))
def block(change: Inserted[LoginAttempts] | Modified[LoginAttempts]) -> Put[Block]:
    """Block a user, once for each hour; a block that somebody has lifted is not there any more."""
    group = change.new
    blocked = Block(username=group.username, hour=group.hour, expires=group.hour + BLOCKED)
    return Put(blocked).only_if(absent, otherwise="omit")
