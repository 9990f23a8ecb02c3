"""A preset is a set of defaults: whatever is set by itself wins over it."""

import pytest
from pydantic import ValidationError

from streamkit.cli.options import with_preset
from streamkit.settings import PRESETS, Settings

BALANCED = Settings()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_what_it_says_and_nothing_else(preset):
    chosen = Settings(preset=preset).model_dump(exclude={"preset"})
    assert chosen == BALANCED.model_dump(exclude={"preset"}) | PRESETS[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_lease_outlasts_a_heartbeat_that_fails_once(preset):
    """Workers of different presets share a fleet: each is judged by the lease that it reports."""
    chosen = Settings(preset=preset)
    assert chosen.lease >= 2 * chosen.heartbeat


def test_an_argument_a_variable_and_the_file_win_over_the_preset(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.streamkit]\nlist_interval = 77\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMKIT_LOOK_INTERVAL", "5")
    chosen = Settings(preset="cost", poll_ceiling=3.0)
    assert (chosen.poll_ceiling, chosen.look_interval, chosen.list_interval) == (3.0, 5.0, 77.0)
    assert chosen.poll_floor == PRESETS["cost"]["poll_floor"]


def test_the_preset_itself_follows_the_same_order(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.streamkit]\npreset = "latency"\n')
    monkeypatch.chdir(tmp_path)
    assert Settings().poll_ceiling == PRESETS["latency"]["poll_ceiling"]
    monkeypatch.setenv("STREAMKIT_PRESET", "cost")
    assert Settings().poll_ceiling == PRESETS["cost"]["poll_ceiling"]
    assert Settings(preset="balanced").poll_ceiling == BALANCED.poll_ceiling


def test_an_unknown_preset_is_refused_with_those_that_there_are():
    with pytest.raises(ValidationError, match="'balanced', 'latency' or 'cost'"):
        Settings(preset="cheap")


def test_a_flag_stands_for_the_preset_of_its_name():
    assert with_preset({"lease": 9.0}, latency=True, cost=False) == {
        "lease": 9.0,
        "preset": "latency",
    }
    assert with_preset({"preset": "cost"}, latency=False, cost=False) == {"preset": "cost"}


def test_two_flags_are_refused():
    with pytest.raises(Exception, match="--latency and --cost: choose one"):
        with_preset({}, latency=True, cost=True)
