"""The entities of the chat: what the items of its table look like.

Only the handlers write the login items and a membership's `user_name`; the counts stand beside
their handlers.
"""

from datetime import datetime
from typing import ClassVar

from streamkit import Entity, Index


class User(Entity, pk="USER#{user_id}", sk="#METADATA"):
    """A user's profile. `click` counts what the user does, so the application adds to it."""

    user_id: str
    username: str
    email: str
    click: int = 0


class UserStats(Entity, pk="USER#{user_id}", sk="#METADATA#STATS"):
    """What is counted of a user, apart from the profile: a click writes one small item."""

    user_id: str
    click: int = 0


class EmailLogin(Entity, pk="USER#{user_id}", sk="EMAIL#{email}"):
    """A user can be found by this address."""

    user_id: str
    email: str

    by_email: ClassVar = Index("GSI1", pk="EMAIL#{email}", sk="USER#{user_id}")


class NameLogin(Entity, pk="USER#{user_id}", sk="USERNAME#{username}"):
    """A user can be found by this name."""

    user_id: str
    username: str

    by_username: ClassVar = Index("GSI1", pk="USERNAME#{username}", sk="USER#{user_id}")


class Server(Entity, pk="SERVER#{server_id}", sk="#METADATA"):
    """A server: where users meet."""

    server_id: str
    title: str


class Membership(Entity, pk="SERVER#{server_id}", sk="USER#{user_id}"):
    """A user is on a server. The index has the keys turned round: the servers of a user."""

    server_id: str
    user_id: str
    role: str = "member"
    user_name: str = ""

    by_user: ClassVar = Index("GSI1", pk="USER#{user_id}", sk="SERVER#{server_id}")


class Message(Entity, pk="CHAT#{chat_id}", sk="MSG#{sent_at:%Y-%m-%dT%H:%M:%S.%f}#{number}"):
    """Somebody has said something. A reader that knows only the number finds it in the index."""

    chat_id: str
    sent_at: datetime
    number: int
    user_id: str
    text: str

    by_number: ClassVar = Index("GSI2", pk="MSG#{number}")
