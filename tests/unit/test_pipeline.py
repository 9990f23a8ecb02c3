"""The pipeline of a shard: what it writes, and when it rests."""

from types import SimpleNamespace

from streamkit.testing.loop import run_virtually
from streamkit.worker.pipeline import ShardPipeline


class Stage:
    """Has nothing but a position to write, as its checkpoints do; meanwhile the next page is read."""

    left = False

    def __init__(self):
        self.pending, self.persist_due, self.runs = [], 0.0, 0

    async def position(self):
        self.persist_due = 60.0
        self.pending.append("came meanwhile")

    async def run(self):
        self.runs += 1
        self.pending.clear()


def test_what_comes_while_a_position_is_written_is_not_left_lying():
    stage = Stage()
    pipeline = SimpleNamespace(stage=stage, checkpoints=stage, _committing=True)

    async def main():
        await ShardPipeline._commit(pipeline)

    run_virtually(main, seed=1)
    assert pipeline.stage.pending == []
    assert pipeline.stage.runs == 1
    assert not pipeline._committing
