"""The command line, `streamkit COMMAND`; `program` lists the commands.

Every command is a thin call of a public function. A command imports what it needs when it runs, so
that `--help`, and programs that use streamkit without the command line, start fast.
"""


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    from streamkit.cli.signals import terminable

    with terminable():
        from streamkit.cli.program import run

        run()
