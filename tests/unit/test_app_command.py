"""The app may be left out of every command where the settings name it, and `next:` lines run."""

import shlex
from typing import Any

import pytest
import typer
import typer.testing

from streamkit.cli.printing import say_next
from streamkit.cli.program import program

COMMANDS = typer.main.get_command(program)


@pytest.fixture(autouse=True)
def no_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No test reads the app of a pyproject.toml that happens to be there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STREAMKIT_APP", raising=False)


def parsed(line: str) -> dict[str, Any]:
    """Return the arguments and options that a command line gives its command."""
    command: Any = COMMANDS
    words = shlex.split(line)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    params: dict[str, Any] = command.make_context("it", words).params
    return params


CASES = [
    ("aggregate rebuild Stats", {"name": "Stats"}),
    ("aggregate verify --looks 2 Stats", {"name": "Stats", "looks": 2}),
    ("aggregate pause Stats", {"name": "Stats"}),
    ("explain 'ORDER#1'", {"key": ("ORDER#1",)}),
    ("explain 'ORDER#1' 'ORDER:1' --records", {"key": ("ORDER#1", "ORDER:1"), "records": True}),
    ("migrate new order_status --mode touch", {"name": "order_status", "mode": "touch"}),
    ("migrate apply", {"number": None}),
    ("migrate apply 0003", {"number": "0003"}),
    ("migrate status 0003", {"number": "0003"}),
    ("migrate status", {"number": None}),
    ("migrate stamp 0001 0002 --reason why", {"numbers": ["0001", "0002"]}),
    ("migrate errors show 0001 abc", {"number": "0001", "item": "abc"}),
    ("migrate errors retry 0001", {"number": "0001"}),
    ("migrate squash --to 0002", {}),
    ("consumers join shipped", {"handler": "shipped"}),
]


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_an_app_that_the_settings_name_may_be_left_out(
    line: str, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMKIT_APP", "shop.app:app")
    found = parsed(line)
    assert found["app"] == "shop.app:app"
    for name, value in wanted.items():
        assert (tuple(found[name]) if type(value) is tuple else found[name]) == value


@pytest.mark.parametrize("configured", ["", "shop.app:app", "other:app"])
@pytest.mark.parametrize(
    "line",
    [
        "aggregate rebuild deals:app Stats",
        "explain deals:app ORDER#1 ORDER",
        "migrate apply deals:app",
        "migrate apply deals:app 0003",
        "migrate status deals:app",
        "migrate stamp deals:app 0001 0002 --reason why",
        "migrate errors retry deals:app 0001",
    ],
)
def test_an_app_that_is_named_wins(
    line: str, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMKIT_APP", configured)
    assert parsed(line)["app"] == "deals:app"


def test_a_module_alone_is_an_app_where_the_number_of_arguments_or_the_settings_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parsed("aggregate rebuild deals Stats")["app"] == "deals"
    assert parsed("migrate apply deals")["app"] == "deals"
    monkeypatch.setenv("STREAMKIT_APP", "deals:app")
    assert parsed("aggregate rebuild other Stats")["app"] == "other"
    assert parsed("migrate apply deals")["app"] == "deals"
    assert parsed("explain deals 'ORDER#1'")["app"] == "deals"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for configured, line in (("", "aggregate rebuild Stats"), ("a:app", "aggregate rebuild a:app")):
        monkeypatch.setenv("STREAMKIT_APP", configured)
        with pytest.raises(Exception, match="name"):
            parsed(line)


NEXT = [
    ("worker",),
    ("consumers resume",),
    ("parked list", "--stuck"),
    ("parked show", "--queue", "q"),
    ("parked redrive", "--all"),
    ("aggregate rebuild", "Stats"),
    ("migrate new", "copies_again", "--mode", "touch", "--entity", "User"),
    ("check",),
    ("status", "--watch"),
    ("iam",),
]


@pytest.mark.parametrize("words", NEXT, ids=lambda words: words[0])
@pytest.mark.parametrize("app", [None, "shop.app:app"])
@pytest.mark.parametrize("listener", [None, "search"])
def test_a_next_line_runs_as_it_is_printed_whether_the_app_was_given_or_is_configured(
    words: tuple[str, ...],
    app: str | None,
    listener: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STREAMKIT_APP", "shop.app:app")
    say_next(app, words, listener if words != ("iam",) else None)
    found = parsed(capsys.readouterr().out.removeprefix("next: streamkit "))
    ours = "shop.app:app.search" if listener and "aggregate" in words[0] else "shop.app:app"
    assert (found.get("app") or found["apps"]) in (ours, [ours], (ours,))
    if words[0] == "aggregate rebuild":
        assert found["name"] == "Stats"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("migrate apply shop 0001 --to 0002", "name one migration, or say --to"),
        ("migrate apply shop --keys-from keys.jsonl", "--keys-from is for one migration"),
        ("migrate limit shop 0001", "no limit is given"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(line, said, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    done = typer.testing.CliRunner().invoke(program, shlex.split(line))
    assert (done.exit_code, said in done.output) == (2, True), done.output
