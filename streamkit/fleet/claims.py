"""Claims: how a shard that one worker reads moves to the worker that it is assigned to.

    claimant        writes a token of the lease into its own member item, once per view
    owner           sees it there, commits what is dispatched, releases the shard
    claimant        takes it; or by force, if it was not given by the deadline
    other workers   leave it to the claimant for a lease, then the assigned worker takes it

A token contains the lease's epoch, so that an old claim says nothing about a later lease. A worker
claims a shard once per view, and none releases a shard unasked. So two workers that see the fleet
differently cannot pass a shard back and forth for ever.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.fleet.members import Member
from streamkit.progress.control import Cursor


def token(cursor: Cursor) -> str:
    """Return a token for one lease of one shard."""
    text = f"{cursor.name}#{cursor.epoch}"
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@dataclass
class Claims:
    """The claims of one worker, and the shards that it gave away; times are monotonic seconds.

    In a starved fleet an owner has `times` as long to give a claimed shard, see `starvation`.
    """

    deadline_seconds: float
    reserve_seconds: float
    times: int = 1
    _mine: dict[str, tuple[str, float]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _given: dict[str, tuple[str, float]] = field(default_factory=dict)
    _awaited: dict[str, tuple[str, float]] = field(default_factory=dict)

    def stretch(self, times: int) -> None:
        """Let owners have so many times as long from now on."""
        self.times = times

    @property
    def tokens(self) -> frozenset[str]:
        """Return the tokens of the leases that this worker claims."""
        return frozenset(token for token, _ in self._mine.values())

    @property
    def pending(self) -> frozenset[str]:
        """Return the shards that this worker claims."""
        return frozenset(self._mine)

    def new_view(self) -> None:
        """Drop all claims, because the fleet has changed; each shard may be claimed once more."""
        self._mine.clear()
        self._used.clear()

    def may_claim(self, name: str) -> bool:
        """Return whether a shard was not claimed yet in this view."""
        return name not in self._used

    def claim(self, cursor: Cursor, now: float) -> None:
        """Claim the lease of a cursor until its deadline; `now` is monotonic seconds."""
        self._used.add(cursor.name)
        self._mine[cursor.name] = (token(cursor), now + self.times * self.deadline_seconds)

    def settle(self, name: str) -> None:
        """Drop a claim: the shard was taken, or is not wanted any more."""
        self._mine.pop(name, None)

    def is_overdue(self, cursor: Cursor, now: float) -> bool:
        """Return whether a claimed lease was not given by the deadline.

        If the lease has ended in another way, the claim is dropped.
        """
        own, deadline = self._mine.get(cursor.name, ("", 0.0))
        if own and own != token(cursor):
            self.settle(cursor.name)
            return False
        return bool(own) and now >= deadline

    def granted(
        self, held: Mapping[str, Cursor], others: Iterable[Member], now: float
    ) -> list[str]:
        """Return which of the held shards other workers claim; each lease is returned once.

        Each shard is reserved for its claimant for a while, from when it is released.
        """
        wanted = {token for member in others for token in member.claims}
        given: list[str] = []
        for name, cursor in held.items() if wanted else ():
            lease = token(cursor)
            if lease not in wanted:
                continue
            if self._given.get(name, ("", 0.0))[0] != lease:
                given.append(name)
            self._given[name] = (lease, now + self.reserve_seconds)
        return given

    def is_late(self, cursor: Cursor, now: float) -> bool:
        """Return whether to wait no longer for a lease that another worker claims."""
        lease = token(cursor)
        seen, since = self._awaited.get(cursor.name, ("", now))
        if seen != lease:
            since = now
        self._awaited[cursor.name] = (lease, since)
        return now - since >= self.times * self.deadline_seconds

    def is_reserved(self, cursor: Cursor, now: float) -> bool:
        """Return whether a shard is reserved for another worker that has not had time to take it.

        Once that worker has taken it, there is a new lease; if that lease is free, any worker may
        take it.
        """
        lease, until = self._given.get(cursor.name, ("", 0.0))
        if until and (now >= until or lease != token(cursor)):
            del self._given[cursor.name]
            return False
        return now < until
