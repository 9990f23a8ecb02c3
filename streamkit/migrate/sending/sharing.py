"""Divide a migration's limits among its processes, so that all together keep to them.

Every process that has something to do has a claim in one item of the table, and uses the limit
divided by the number of claims there. It looks twice a second, and uses nothing on a look that is
older than `FRESH_SECONDS`. A claim counts for other processes as soon as they read it, but for its
owner only `WAIT_SECONDS` later, unless there was no other when it was made. So of two processes
that use something each has seen the other's claim: the later one waited until the earlier one had
looked again, or could not continue. The sum of what is used is never more than the limit.

A process without anything to do removes its claim, and the others go faster at their next look. A
claim is renewed; a claim that is not, as two looks by the clock of the reader show, belongs to a
dead process, and a process that could not renew its own starts as if it had none.

In: whether the process has something to do. Out: its share, 0 to 1, and until when that holds.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.migrate.book.limits import Share
from streamkit.migrate.sending.rate import Rate
from streamkit.model.conditions import Attr
from streamkit.progress.actions import Action, Wire
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.lease import LeaseWatch

LOOK_SECONDS = 0.5
FRESH_SECONDS = 2.0
"""How long in seconds a look is valid, from the moment at which it was sent."""
WAIT_SECONDS = 2.5
"""Seconds from a claim until it counts for its owner: longer than a look is valid."""
_TICK_SECONDS = 0.1
_OF = "of_"
"""The prefix of the hash of a process's name, in the item that holds the claims."""
_RENEW_SECONDS = 5.0
_LOST_SECONDS = 10.0
"""Seconds until an owner does not rely on its claim any more; shorter than others wait."""
_DEAD_SECONDS = 15.0
_REFUSED = (
    "the table refuses a claim on the migration's limits ({}): give these credentials"
    " dynamodb:UpdateItem and dynamodb:GetItem on it; every process that reads or"
    " writes for a migration shares its limits"
)


@dataclass
class Shares:
    """One process's claim on a migration's limits; `name` names only this process, for ever."""

    store: CursorStore
    migration: str
    name: str
    clock: Clock
    _from: float | None = None
    _renewed: float = 0.0
    _count: int = 0
    _watch: LeaseWatch = field(default_factory=lambda: LeaseWatch(_DEAD_SECONDS))

    async def keep(self, rate: Rate) -> None:
        """Keep a rate to its share while it is limited and busy, until it is cancelled.

        Raises:
            ConfigurationError: the credentials may not write a claim, so it would wait for ever.
        """
        looked, began = -1e9, self.clock.monotonic()
        try:
            while True:
                starts = self.clock.monotonic() - began < WAIT_SECONDS
                wants = (rate.is_busy or starts) and not rate.limits.none
                due = self._from is None or self.clock.monotonic() - looked >= LOOK_SECONDS
                if not wants:
                    rate.take(Share(0.0, 0.0))
                try:
                    if not wants:
                        await self.leave()
                    elif due:
                        looked = self.clock.monotonic()
                        rate.take(await self.look())
                except AwsError as error:  # a look that is too old is not used
                    if trouble_of(error) is ErrorKind.REFUSED:
                        raise ConfigurationError(_REFUSED.format(code_of(error))) from error
                await anyio.sleep(LOOK_SECONDS if rate.limits.none else _TICK_SECONDS)
        finally:
            rate.take(Share(0.0, 0.0))
            with anyio.CancelScope(shield=True), anyio.move_on_after(5), suppress(*AwsError):
                await self.leave()

    async def look(self) -> Share:
        """Claim a part, or keep it; return what may be used now."""
        asked = self.clock.monotonic()
        if self._from is not None and asked - self._renewed > _LOST_SECONDS:
            self._from = None
        if self._from is None:
            self._watch.observe({}, asked=asked, answered=asked)  # claims may have come and gone
        if self._from is None or asked - self._renewed > _RENEW_SECONDS:
            item = await self._renew(asked)
        else:
            item = await self.store.item("shares", self.migration) or {}
        others = await self._others(item, asked)
        if self._from is None:
            waits = others or self._count == 1  # processes that start together have much to write
            self._from = self.clock.monotonic() + (WAIT_SECONDS if waits else 0.0)
        part = 1 / (1 + others) if self.clock.monotonic() >= self._from else 0.0
        return Share(part, asked + FRESH_SECONDS)

    async def leave(self) -> None:
        """Remove the claim; from before this call on nothing may be used."""
        if self._from is not None:
            self._from = None
            await self._remove(self._attribute, f"{self._count}")

    async def _renew(self, asked: float) -> dict[str, Wire]:
        self._count += 1
        action = self._update()
        action.sets[self._attribute] = {"S": f"{self._count}"}
        self._renewed = asked
        return await self.store.write(action)

    async def _others(self, item: dict[str, Wire], asked: float) -> int:
        """Return how many other processes have a claim, and remove those of dead ones."""
        claims = {n: v["S"] for n, v in item.items() if n.startswith(_OF) and n != self._attribute}
        self._watch.observe(claims, asked=asked, answered=self.clock.monotonic())
        dead = [name for name in claims if self._watch.is_abandoned(name)]
        for name in dead:
            await self._remove(name, claims[name])
        return len(claims) - len(dead)

    async def _remove(self, name: str, count: str) -> None:
        """Remove a claim IF it is still that one: a late removal leaves a later claim alone."""
        action = self._update()
        action.removes.add(name)
        with suppress(LeaseLost):
            await self.store.write(action.only_if(Attr(name).eq(count)))

    @property
    def _attribute(self) -> str:
        return f"{_OF}{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}"

    def _update(self) -> Action:
        return self.store.space.update("shares", self.migration)
