"""The entities of the session store: what the items of its table look like.

The table has a partition key alone, called `SessionToken` because sessions are what it was made
for; everything else says by a prefix what it is. Only sessions have the attribute `Username`, so
the index on it holds nothing else.
"""

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from streamkit import Entity, EpochSeconds, Index


class Session(Entity, pk="{token}"):
    """Somebody is logged in. The application puts it once; later it only moves `expires`."""

    token: str = Field(alias="SessionToken")
    username: str = Field(alias="Username")
    created_at: EpochSeconds = Field(alias="CreatedAt")
    expires: EpochSeconds = Field(alias="TTL")

    by_user: ClassVar = Index("UserIndex", pk="{username}", pk_attribute="Username")


class SessionEnd(Entity, pk="END#{token}"):
    """How a session ended: written once, by a handler."""

    token: str
    username: str
    reason: Literal["expired", "logged out"]
    at: datetime
    expires: EpochSeconds = Field(alias="TTL")


class LogoutRequest(Entity, pk="LOGOUT#{username}"):
    """A user wants all sessions ended that there are; asked again, `at` moves on."""

    username: str
    at: EpochSeconds
    expires: EpochSeconds = Field(alias="TTL")


class LoginAttempt(Entity, pk="ATTEMPT#{username}#{attempt_id}"):
    """Somebody tried to log in as this user, and failed."""

    username: str
    attempt_id: str
    at: EpochSeconds
    expires: EpochSeconds = Field(alias="TTL")


class Block(Entity, pk="BLOCK#{username}#{hour:%Y-%m-%dT%H}"):
    """Nobody may log in as this user until it expires: there were too many attempts in an hour."""

    username: str
    hour: datetime
    expires: EpochSeconds = Field(alias="TTL")
