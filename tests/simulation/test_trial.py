"""Trials: they meet the trouble that they promise, and see what is wrong."""

from collections import Counter
from datetime import timedelta
from typing import Annotated

import pytest

from streamkit import (
    Aggregate,
    App,
    Attr,
    Count,
    Delete,
    Entity,
    EpochSeconds,
    Inserted,
    Key,
    Modified,
    Put,
    Send,
    Set,
    TableShape,
    absent,
)
from streamkit.sinks.sink import Limits
from streamkit.testing import Comparison, Different, Trouble, recording, trial
from tests.seeds import seeds


class Like(Entity, pk="LIKE#{brand}", sk="USER#{user}"):
    brand: str
    user: str
    expires: EpochSeconds | None = None


class Page(Entity, pk="PAGE#{brand}", sk="PAGE"):
    brand: str
    views: int = 0


class Copy(Entity, pk="COPY#{brand}", sk="USER#{user}"):
    brand: str
    user: str


class Door:
    """A sink that is never opened: trials replace it by a recorder."""

    name = "door"
    limits = Limits(items=10)


def make_app():
    app = App("likes", table="Likes", entities=[Page, Copy], tables=["Copies"])
    door = app.sink(Door())

    @app.aggregate
    class Likes(Aggregate[Like], pk="LIKES#{brand}", sk="LIKES"):
        brand: str
        likes: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, like: Like) -> Key["Likes"]:
            return cls.key(brand=like.brand)

    @app.on
    def tell(change: Inserted[Like]) -> list[Send | Put[Copy]]:
        copy = Copy(brand=change.new.brand, user=change.new.user)
        return [Send(door, {"user": change.new.user}), Put(copy).to("Copies")]

    app.likes = Likes
    return app


class Traffic:
    def __init__(self, app, lie=0):
        self.app, self.lie, self.refused = app, lie, 0

    async def open(self, writer):
        await writer.put(*(Page(brand=brand) for brand in "abc"))

    async def act(self, writer):
        rng = writer.rng
        like = Like(
            brand=rng.choice("abc"),
            user=str(rng.randrange(40)),
            expires=rng.choice((None, writer.now + timedelta(seconds=rng.randrange(1, 60)))),
        )
        if rng.random() < 0.3:
            await writer.delete(like.item_key)
            return
        if not await writer.write(Put(like).only_if(absent)):
            self.refused += 1
        page = await writer.table.get(Page.key(brand=like.brand))
        unseen = Attr("views").eq(page.views)
        await writer.transact(Set(page.item_key, views=page.views + 1).only_if(unseen))

    def expected(self, final):
        counts = Counter(like.brand for like in final[Like]).items()
        likes = self.app.likes
        yield final.compare(likes, [likes(brand=b, likes=n + self.lie) for b, n in counts])
        views = Counter(w.effect.key.pk[-1] for w in final.log if isinstance(w.effect, Set))
        yield final.compare(Page, [Page(brand=b, views=views[b]) for b in "abc"])
        ever = {(like.brand, like.user) for like in final.puts(Like)}
        copies = [Copy(brand=b, user=u) for b, u in ever]
        yield final.compare(Copy, copies, table="Copies", title="copies")
        told = Counter(d.body["user"] for d in final.sent["door"].once)
        wanted = Counter(like.user for like in final.puts(Like))
        yield Comparison.of("told", told, wanted)


SHAPE = TableShape(ttl="expires")
OTHERS = {"Copies": TableShape()}


@pytest.mark.parametrize("seed", seeds(3))
def test_an_app_that_is_right_passes_through_all_of_it(seed):
    app = make_app()
    traffic = Traffic(app)
    trouble = Trouble(crash=0.05, split=0.03, roll=0.02, pause=20)
    ran = trial(app, traffic, shape=SHAPE, others=OTHERS, seed=seed, acts=150, trouble=trouble)
    assert all(ran.met[name] for name in ("crash", "split", "roll", "expired"))
    assert all(comparison.compared for comparison in ran.comparisons)
    assert traffic.refused


def test_one_seed_is_one_run():
    def run():
        app = make_app()
        ran = trial(app, Traffic(app), shape=SHAPE, others=OTHERS, seed=5, acts=40)
        return ran.met, [comparison.compared for comparison in ran.comparisons]

    assert run() == run()


def test_a_difference_is_told_in_words():
    app = make_app()
    with pytest.raises(Different, match=r"Likes: LIKES#a LIKES: found .*, expected brand='a'"):
        trial(app, Traffic(app, lie=1), shape=SHAPE, others=OTHERS, acts=30)


def test_a_handler_that_counts_redeliveries_is_found_out():
    app = App("views", table="Views", entities=[Page])
    seen = Counter()

    @app.on
    def count(change: Inserted[Like] | Modified[Like]) -> Set[Page]:
        seen[change.new.brand] += 1  # a crash lets it count again
        return Set(Page.key(brand=change.new.brand), views=seen[change.new.brand])

    class Views(Traffic):
        async def open(self, writer): ...

        async def act(self, writer):
            like = Like(brand="a", user=str(len(writer.log)))
            await writer.put(like)

        def expected(self, final):
            yield final.compare(Page, [Page(brand="a", views=len(final[Like]))])

    def some_seeds():
        for seed in range(5):
            seen.clear()
            trial(app, Views(app), seed=seed, acts=60, trouble=Trouble(crash=0.3))

    with pytest.raises(Different):
        some_seeds()


def test_a_recorder_takes_the_sinks_place_for_a_while_only():
    app = make_app()
    before = list(app.sinks)
    with recording(app) as sent:
        assert app.sinks == [sent["door"]]
        assert sent["door"].limits == Limits(items=10)
    assert app.sinks == before


def test_what_is_refused_is_no_part_of_the_log():
    app = make_app()

    class Refused(Traffic):
        async def act(self, writer):
            page = Page(brand="a", views=7)
            assert not await writer.write(Put(page).only_if(absent))
            assert not await writer.transact(
                Delete(page.item_key).only_if(absent), Put(Page(brand="y"))
            )
            await writer.write(Put(Page(brand="z")).only_if(absent))

        def expected(self, final):
            assert [page.brand for page in final.puts(Page)] == ["a", "b", "c", "z"]
            yield final.compare(Page, [Page(brand=b) for b in "abcz"])

    trial(app, Refused(app), shape=SHAPE, others=OTHERS, acts=3)
