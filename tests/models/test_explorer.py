"""The explorer finds what is wrong by a shortest way, and all that it is asked for."""

from tests.models.explorer import explore, follow, stuck, told, walks


class Counter:
    """A number that grows by one or two up to a limit; a trap is left by nothing."""

    def __init__(self, limit=6, by=(1, 2), trap=None):
        self.limit, self.by, self.trap = limit, by, trap

    def first(self):
        return 0

    def steps(self, world):
        if world != self.trap:
            yield from ((("add", n), world + n) for n in self.by if world + n <= self.limit)

    def wrong(self, world):
        if world == 5:
            yield "five"


def test_every_world_is_looked_at_and_a_trace_is_a_shortest():
    found = explore(Counter())
    assert set(found.worlds) == set(range(7))
    assert len(found.broken["five"]) == 3
    assert explore(Counter(limit=4)).broken == {}


def test_it_stops_where_it_was_told_to():
    assert 8 not in explore(Counter(limit=9, by=(1,)), until="five").worlds


def test_a_world_from_which_no_goal_is_reached_is_found():
    def is_end(world):
        return world == 6

    assert stuck(explore(Counter()), is_end, lambda step: True) is None
    assert stuck(explore(Counter(trap=3)), is_end, lambda step: True) == (("add", 1), ("add", 2))
    assert stuck(explore(Counter()), is_end, lambda step: step == ("add", 2)) == (("add", 1),)


def test_walks_are_legal_and_the_same_each_time():
    model = Counter()
    first = list(walks(model, 20, 4))
    assert first == list(walks(model, 20, 4)) != list(walks(model, 20, 4, seed=1))
    assert all(len(list(follow(model, walk))) == len(walk) for walk in first)


def test_the_steps_of_another_model_happen_where_they_can():
    steps = [("add", 1), ("add", 2), ("add", 1)]
    assert list(follow(Counter(by=(1,)), steps)) == [(("add", 1), 1), (("add", 1), 2)]
    assert told(steps) == "add 1; add 2; add 1"
