"""The users of the chat, and what must follow from what they do.

A user who joins a server writes the name that was read a moment before, which may be old by then.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator

from handlers.chat.entities import EmailLogin, Membership, Message, NameLogin, Server, User
from handlers.chat.handlers import ChatActivity, ServerMembers
from streamkit import Add, Delete, Key, Put, Set, absent, present
from streamkit.testing import Comparison, Final, Writer

Act = Callable[[Writer], Awaitable[None]]


class Traffic:
    """Users, servers and chats.

    Args:
        users: how many there are at first.
        servers: how many there are.
        chats: likewise.
    """

    def __init__(self, *, users: int = 25, servers: int = 6, chats: int = 5) -> None:
        self._users = [f"u{number}" for number in range(users)]
        self._servers = [f"s{number}" for number in range(servers)]
        self._chats = [f"c{number}" for number in range(chats)]
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        self._messages: list[Key[Message]] = []
        self._numbers = 0

    async def open(self, writer: Writer) -> None:
        """Write servers and users, and let each join one server."""
        await writer.put(*(Server(server_id=s, title=f"Server {s}") for s in self._servers))
        for user_id in self._users:
            name = self._new_name(user_id)
            await writer.put(User(user_id=user_id, username=name, email=f"{name}@example.com"))
            await writer.put(
                Membership(server_id=writer.rng.choice(self._servers), user_id=user_id)
            )

    async def act(self, writer: Writer) -> None:
        """Do one small thing that a user does."""
        acts: dict[Act, float] = {
            self._say: 25,
            self._unsay: 8,
            self._edit: 5,
            self._join: 14,
            self._leave: 6,
            self._promote: 5,
            self._rename: 12,
            self._change_email: 5,
            self._click: 10,
            self._sign_off: 0.7,
        }
        (act,) = writer.rng.choices(list(acts), list(acts.values()))
        await act(writer)

    # -- messages ------------------------------------------------------------------------------

    async def _say(self, writer: Writer) -> None:
        self._numbers += 1
        message = Message(
            chat_id=writer.rng.choice(self._chats),
            sent_at=writer.now,
            number=self._numbers,
            user_id=writer.rng.choice(self._users),
            text=_text(writer.rng),
        )
        await writer.put(message)
        self._messages.append(message.item_key)

    async def _unsay(self, writer: Writer) -> None:
        """Delete one of the latest messages; one of these is the last of its chat."""
        if self._messages:
            latest = range(len(self._messages))[-8:]
            await writer.delete(self._messages.pop(writer.rng.choice(latest)))

    async def _edit(self, writer: Writer) -> None:
        if self._messages:
            message = writer.rng.choice(self._messages[-8:])
            await writer.write(Set(message, text=_text(writer.rng)).only_if(present))

    # -- servers -------------------------------------------------------------------------------

    async def _join(self, writer: Writer) -> None:
        user = await writer.table.get(User.key(user_id=writer.rng.choice(self._users)))
        if user is not None:
            membership = Membership(
                server_id=writer.rng.choice(self._servers),
                user_id=user.user_id,
                user_name=user.username,
            )
            await writer.write(Put(membership).only_if(absent))

    async def _leave(self, writer: Writer) -> None:
        await writer.delete(self._membership(writer.rng))

    async def _promote(self, writer: Writer) -> None:
        promoted = Set(
            self._membership(writer.rng), role=writer.rng.choice(["member", "moderator"])
        )
        await writer.write(promoted.only_if(present))

    def _membership(self, rng: random.Random) -> Key[Membership]:
        server_id, user_id = rng.choice(self._servers), rng.choice(self._users)
        return Membership.key(server_id=server_id, user_id=user_id)

    # -- users ---------------------------------------------------------------------------------

    async def _rename(self, writer: Writer) -> None:
        user_id = writer.rng.choice(self._users)
        renamed = Set(User.key(user_id=user_id), username=self._new_name(user_id))
        await writer.write(renamed.only_if(present))

    async def _change_email(self, writer: Writer) -> None:
        user_id = writer.rng.choice(self._users)
        email = f"{user_id}.{writer.rng.randrange(100)}@example.com"
        await writer.write(Set(User.key(user_id=user_id), email=email).only_if(present))

    async def _click(self, writer: Writer) -> None:
        user = User.key(user_id=writer.rng.choice(self._users))
        await writer.write(Add(user, click=1).only_if(present))

    async def _sign_off(self, writer: Writer) -> None:
        if len(self._users) > 1:
            user_id = self._users.pop(writer.rng.randrange(len(self._users)))
            await writer.write(Delete(User.key(user_id=user_id)))

    def _new_name(self, user_id: str) -> str:
        name = f"{user_id}-{len(self._names[user_id])}"
        self._names[user_id].add(name)
        return name

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything that handlers keep with what it follows from."""
        users = {user.user_id: user for user in final[User]}
        yield final.compare(
            EmailLogin, [EmailLogin(user_id=u.user_id, email=u.email) for u in users.values()]
        )
        yield final.compare(
            NameLogin, [NameLogin(user_id=u.user_id, username=u.username) for u in users.values()]
        )
        memberships = final[Membership]
        wanted = [
            membership.model_copy(update={"user_name": users[membership.user_id].username})
            for membership in memberships
            if membership.user_id in users
        ]
        # The last copied name of a deleted user stays.
        wanted += [
            membership
            for membership in memberships
            if membership.user_id not in users
            and membership.user_name in {"", *self._names[membership.user_id]}
        ]
        yield final.compare(Membership, wanted)
        members = Counter(membership.server_id for membership in memberships)
        moderators = Counter(m.server_id for m in memberships if m.role == "moderator")
        yield final.compare(
            ServerMembers,
            [
                ServerMembers(server_id=server, users=count, moderators=moderators[server])
                for server, count in members.items()
            ],
        )
        yield final.compare(ChatActivity, _activity(final[Message]))


def _activity(messages: list[Message]) -> Iterator[ChatActivity]:
    chats: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        chats[message.chat_id].append(message)
    for chat_id, said in chats.items():
        last = max(said, key=lambda message: (message.sent_at, message.item_key.sk or ""))
        yield ChatActivity(
            chat_id=chat_id,
            messages=len(said),
            last_at=last.sent_at,
            last_by=last.user_id,
            last_text=last.text,
        )


def _text(rng: random.Random) -> str:
    return f"{rng.choice(['hello', 'well', 'so', 'no'])} {rng.randrange(1000)}"
