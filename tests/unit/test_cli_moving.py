"""What the commands of moves, joins and pauses say."""

from types import SimpleNamespace

import pytest

from streamkit.cli import consumers
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


@pytest.mark.parametrize(
    ("paused", "said"),
    [(True, "move of shop waits until it is resumed"), (False, "move of shop goes on")],
)
def test_a_consumer_goes_on_when_only_an_operation_of_it_is_paused(
    paused, said, monkeypatch, capsys
):
    asked = []
    monkeypatch.setattr(consumers, "with_aws", lambda ask: asked.append(ask) or "workers")
    monkeypatch.setattr(consumers, "app_named", lambda *_: SimpleNamespace(name="shop"))
    consumers._set_paused("shop", None, "move", paused=paused)
    assert len(asked) == 1
    assert capsys.readouterr().out == f"{said}\n"
