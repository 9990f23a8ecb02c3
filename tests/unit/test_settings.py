"""Settings that cannot work, and names that do not exist, are refused with what to do."""

import pytest
from pydantic import ValidationError

from streamkit.settings import Settings


def test_a_lease_shorter_than_two_heartbeats_is_refused():
    with pytest.raises(ValidationError, match="at least twice the heartbeat"):
        Settings(lease=1, heartbeat=3)


@pytest.mark.parametrize("name", ["grace", "poll_ceiling", "catch_up_wcu"])
@pytest.mark.parametrize("text", ["inf", "nan"])
def test_a_number_without_an_end_is_refused(name, text):
    with pytest.raises(ValidationError, match=f"{name}\n.*finite"):
        Settings(**{name: text})


def test_a_misspelt_variable_is_refused(monkeypatch):
    monkeypatch.setenv("STREAMKIT_LAESE", "9")
    with pytest.raises(ValidationError, match="STREAMKIT_LAESE"):
        Settings()


def test_a_misspelt_setting_in_a_file_is_refused(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.streamkit]\nlaese = 5\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match="laese"):
        Settings()


def test_an_argument_beats_the_environment_and_that_the_file(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.streamkit]\nheartbeat = 1\nconcurrency = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMKIT_HEARTBEAT", "2")
    assert Settings(lease=10).heartbeat == 2
    assert Settings(lease=10, heartbeat=3).heartbeat == 3
    assert Settings(lease=10).concurrency == 7
