"""What follows from what in the chat: logins, names on memberships, and counts."""

from datetime import datetime
from typing import Annotated

from handlers.chat.entities import (
    EmailLogin,
    Membership,
    Message,
    NameLogin,
    Server,
    User,
    UserStats,
)
from streamkit import (
    Aggregate,
    App,
    Count,
    Key,
    Last,
    Max,
    Query,
    Set,
    TableShape,
    changed,
)

app = App("chat", table="Chat", entities=[Server, EmailLogin, NameLogin, UserStats])

SHAPE = TableShape()
"""All of it follows from the entities: one overloaded index, and one of messages alone."""


# -- users -------------------------------------------------------------------------------------


@app.derive
def login_items(user: User) -> list[EmailLogin | NameLogin]:
    """Let a user be found by address and name: as it is called now, and not as it was."""
    return [
        EmailLogin(user_id=user.user_id, email=user.email),
        NameLogin(user_id=user.user_id, username=user.username),
    ]


def memberships_of(user: User) -> Query[Membership]:
    """Return the memberships of a user; from an index, which trails the table."""
    return Membership.query(index=Membership.by_user, user_id=user.user_id)


def user_of(membership: Membership) -> Key[User]:
    """Return the key of the user whose membership it is."""
    return User.key(user_id=membership.user_id)


@app.mirror(copies=memberships_of, source=user_of, when=changed("username"))
def copy_user_name(user: User, membership: Membership) -> Set[Membership]:
    """Keep a user's name on every membership. A click is no change of it."""
    return Set(membership.item_key, user_name=user.username)


@app.aggregate
class ServerMembers(Aggregate[Membership], pk="SERVER#{server_id}", sk="#MEMBERS"):
    """How many users are on a server, and how many of them are moderators."""

    server_id: str
    users: Annotated[int, Count()] = 0
    moderators: Annotated[int, Count(when=lambda member: member.role == "moderator")] = 0


# -- messages ----------------------------------------------------------------------------------


@app.aggregate
class ChatActivity(Aggregate[Message], pk="CHAT#{chat_id}", sk="#ACTIVITY"):
    """What a list of chats shows: how many messages, when and what the last one was, and whose."""

    chat_id: str
    messages: Annotated[int, Count()] = 0
    last_at: Annotated[datetime | None, Max("sent_at")] = None
    last_by: Annotated[str | None, Last("user_id", by="sent_at")] = None
    last_text: Annotated[str | None, Last("text", by="sent_at")] = None

    @classmethod
    def members(cls, chat_id: str) -> Query[Message]:
        """Return the messages of a chat: which is the last one if the last one is deleted."""
        return Message.query(chat_id=chat_id)
