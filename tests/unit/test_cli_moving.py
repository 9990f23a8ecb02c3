"""What the commands of moves and joins say."""

import pytest

from streamkit.cli.moving import _taken_so_far
from streamkit.operate.moves.taking_over import TakingOver


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        (0, "shop runs tally on 1 of 3 shards"),
        (1, "1 parked queue holds it up: redrive or discard what is parked"),
        (2, "2 parked queues hold it up"),
    ],
)
def test_a_join_says_what_holds_it_up(queues, said):
    text = _taken_so_far(TakingOver("shop", "tally", 3, 1, queues))
    assert said in text
    assert ("`streamkit parked list --listener tally`" in text) == bool(queues)
