"""Readings of the member list: when a reading that may be old is enough.

A member moves its counter whenever it can, and now and then says something new. A reader looks at it again and again; an eventually consistent reading returns any version of
the last `OLD` steps. A *rule* says when the reader asks for a fresh one, and whether it reads again
before it acts. Checked in every world:

    alive   a member that counts as dead has been silent for a lease
    found   a member that was silent for a lease, and a look more, counts as dead
    back    what the reader acts on is never older than what it acted on before

In: a rule. Out: what breaks it. Ours holds; the simpler ones are BAD, each for a reason of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

LEASE, OLD, LOOKS = 8, 3, 2
"""In steps: a lease, how old a reading may be, and the most between two readings."""
DOUBT = LEASE * 3 // 4
_FAR = LEASE + OLD + 2 * LOOKS
"""What lies further back than this is all the same."""


@dataclass(frozen=True)
class World:
    """What a member did lately, and what the reader knows of it, as distances from now.

    `versions` are what a reading may return, the newest first: how many heartbeats and how many
    sayings each lacks. `silence` is how many steps ago the last heartbeat was. `counter` and
    `acted` are how many heartbeats and sayings the reader's own knowledge lacks; it first saw its
    `counter` `since` steps ago, and has looked `asked` steps ago. `went_back` says that it has just
    acted on something older than before. The reader judges by the lease `judged_by`; the member
    beats as its own, `LEASE`, demands.
    """

    versions: tuple[tuple[int, int], ...] = ((0, 0),)
    silence: int = 0
    counter: int = 0
    since: int = 0
    asked: int = 0
    acted: int = 0
    went_back: bool = False
    judged_by: int = LEASE

    @property
    def is_dead(self) -> bool:
        """Return whether the reader takes the member for dead."""
        return self.since - self.asked >= self.judged_by


class Rule(Protocol):
    """When a reading has to be fresh."""

    def fresh(self, silence: int) -> bool:
        """Return whether the next one must be, after the counter stood still for so long."""

    def again(self, read: int, acted: int) -> bool:
        """Return whether to read again what was read, and differs from what is acted on or not."""


class Ours:
    """Fresh once a reading might complete a lease; anything that is new is read again."""

    def fresh(self, silence: int) -> bool:
        return silence >= DOUBT

    def again(self, read: int, acted: int) -> bool:
        return read != acted


class NeverFresh(Ours):
    """An old reading lacks the last heartbeat."""

    def fresh(self, silence: int) -> bool:
        return False


class FreshTooLate(Ours):
    """Fresh only when the lease is over, by a reading that was old."""

    def fresh(self, silence: int) -> bool:
        return silence > LEASE


class NewIsTrue(Ours):
    """A copy may show what is new, and the next one what was before."""

    def again(self, read: int, acted: int) -> bool:
        return False


NAIVE: dict[str, tuple[Rule, str]] = {
    "never fresh": (NeverFresh(), "alive"),
    "fresh too late": (FreshTooLate(), "alive"),
    "new is true": (NewIsTrue(), "back"),
}


@dataclass(frozen=True)
class Readings:
    """The model of a member, and of a reader that follows a rule."""

    rule: Rule = field(default_factory=Ours)
    judged_by: int = LEASE

    def first(self) -> World:
        """Begin with a member that was just read."""
        return World(judged_by=self.judged_by)

    def steps(self, world: World) -> Iterator[tuple[tuple[str, int], World]]:
        """Let a step pass in which the member may beat or speak, and the reader may look.

        The number in a step is the version that a reading returns; -1: there is no reading.
        """
        for told in ("silence", "beat", "news"):
            then = _passed(world, told)
            if then.asked < LOOKS:
                yield (told, -1), then
            for old in range(len(then.versions)):
                yield (told, old), self._looked(then, old)

    def _looked(self, world: World, old: int) -> World:
        fresh = self.rule.fresh(world.since)
        counter, said = world.versions[0 if fresh else old]
        if not fresh and self.rule.again(said, world.acted):
            counter, said = world.versions[0]
        return replace(
            world,
            counter=counter,
            since=world.since if counter == world.counter else 0,
            asked=0,
            acted=said,
            went_back=said > world.acted,
        )

    def wrong(self, world: World) -> Iterator[str]:
        """Return what does not hold just after a reading."""
        if world.asked:
            return
        if world.is_dead and world.silence < LEASE:
            yield "alive"
        if not world.is_dead and world.silence >= LEASE + OLD + LOOKS:
            yield "found"
        if world.went_back:
            yield "back"


def _passed(world: World, told: str) -> World:
    beats, news = int(told != "silence"), int(told == "news")
    then = [(counter + beats, said + news) for counter, said in world.versions]
    return replace(
        world,
        versions=((0, 0), *then)[: OLD + 1],
        silence=0 if beats else min(world.silence + 1, _FAR),
        counter=min(world.counter + beats, OLD + LOOKS + 1),
        since=min(world.since + 1, _FAR),
        asked=world.asked + 1,
        acted=min(world.acted + news, OLD + LOOKS + 1),
        went_back=False,
    )
