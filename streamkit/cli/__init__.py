"""The command line, `streamkit COMMAND`; `program` lists the commands.

Every command is a thin call of a public function. What a command needs is imported when it runs,
so that `--help` and whoever imports streamkit without the command line pay for nothing else.
"""


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    from streamkit.cli.signals import terminable

    with terminable():
        from streamkit.cli.program import run

        run()
