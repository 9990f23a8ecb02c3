"""What `--help` prints is whole sentences, on a terminal of 80 columns."""

import click
import pytest
import typer

from streamkit.cli.program import program


def commands(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = dict(commands(typer.main.get_command(program)))
GROUPS = {path: one for path, one in ALL.items() if hasattr(one, "commands")}


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_the_list_of_commands_says_each_in_a_whole_sentence(path):
    context = click.Context(GROUPS[path], terminal_width=80)
    shown = GROUPS[path].get_help(context)
    assert [line for line in shown.splitlines() if line.startswith("  ") and "..." in line] == [
        line for line in shown.splitlines() if "AWS_PROFILE" in line
    ]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_option_says_what_it_does_and_its_sentences_end(path):
    helps = {"": ALL[path].help}
    helps |= {one.name: getattr(one, "help", None) for one in ALL[path].params}
    wrong = {name: text for name, text in helps.items() if not (text or "").strip().endswith(".")}
    assert not wrong
