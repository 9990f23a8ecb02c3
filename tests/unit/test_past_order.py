"""Shards of the past are read side by side, and none before its parent."""

import anyio
import pytest

from streamkit.operate.past.shards import PastShards


def past_of(*lineages):
    """Return the past of a table with these parents of shards, as it is listed at each look."""
    left = list(lineages)

    class Shards(PastShards):
        async def listed(self):
            return left.pop(0) if len(left) > 1 else left[0]

    return object.__new__(Shards)


class Reading:
    """Reads shards; each takes two steps of the loop."""

    def __init__(self, *fails):
        self.fails, self.running, self.log, self.most = fails, set(), [], 0

    async def run(self, shard):
        self.running.add(shard)
        self.most = max(self.most, len(self.running))
        self.log.append(f"begin {shard}")
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
        self.running.remove(shard)
        self.log.append(f"end {shard}")
        return shard not in self.fails


CHAIN = {"a": None, "b": "a", "c": "b", "d": None}


async def test_a_shard_begins_when_its_parent_is_done():
    reading = Reading()
    assert await past_of(CHAIN).each(reading.run)
    for child, parent in (("b", "a"), ("c", "b")):
        assert reading.log.index(f"end {parent}") < reading.log.index(f"begin {child}")
    assert reading.log.index("begin d") < reading.log.index("end a")


async def test_some_shards_are_read_side_by_side():
    reading = Reading()
    assert await past_of(dict.fromkeys("abcdefghij")).each(reading.run)
    assert reading.most == 4
    assert len(reading.log) == 20


async def test_a_shard_that_appears_meanwhile_is_read_and_none_twice():
    reading = Reading()
    assert await past_of({"a": None}, CHAIN).each(reading.run)
    assert sorted(reading.log) == sorted(f"{verb} {s}" for s in CHAIN for verb in ("begin", "end"))


@pytest.mark.parametrize("later", [{}, {"e": "c"}])
async def test_what_descends_from_a_shard_that_is_not_done_is_left_and_the_others_are_read(later):
    reading = Reading("b")
    assert not await past_of(CHAIN, CHAIN | later).each(reading.run)
    assert {line.split()[1] for line in reading.log} == {"a", "b", "d"}


async def test_an_error_ends_all_and_comes_up_alone():
    async def run(shard):
        if shard == "a":
            raise KeyError(shard)
        await anyio.sleep_forever()

    with pytest.raises(KeyError):
        await past_of(dict.fromkeys("abc")).each(run)


async def test_backwards_a_shard_begins_when_all_its_children_are_done():
    reading = Reading()
    await past_of({"a": None, "b": "a", "c": "a", "d": "b", "e": None}).each_backwards(reading.run)
    for parent, child in (("a", "b"), ("a", "c"), ("b", "d")):
        assert reading.log.index(f"end {child}") < reading.log.index(f"begin {parent}")
    assert reading.log.index("begin e") < reading.log.index("end b")
    assert len(reading.log) == 10


async def test_backwards_some_shards_are_read_side_by_side():
    reading = Reading()
    await past_of(dict.fromkeys("abcdefghij")).each_backwards(reading.run)
    assert (reading.most, len(reading.log)) == (4, 20)
