"""How often a replay says how far it is, and what it says."""

from streamkit.operate.replay.progress import ProgressTeller


class Clock:
    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now


def test_a_replay_of_many_small_shards_says_how_far_it_is_every_ten_seconds():
    told, clock = [], Clock()
    progress = ProgressTeller(since=0.0, until=500.0, clock=clock, tell=told.append)
    for number in range(40):
        clock.now += 1
        progress.note_done(f"shard {number}")
    assert [one.done for one in told] == [1, 11, 21, 31]


def test_the_end_of_a_replay_is_told():
    told, clock = [], Clock()
    progress = ProgressTeller(since=0.0, until=500.0, clock=clock, tell=told.append)
    progress.note("one", 250.0)
    progress.note_done("one")
    progress.note_done("two")
    progress.note_end()
    assert [(one.done, one.running, one.share) for one in told] == [(0, 1, 0.5), (2, 0, 0.5)]
