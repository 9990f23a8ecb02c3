"""Commands whose first argument is the app, although other arguments follow.

    streamkit aggregate rebuild shop:app PerStatus
    streamkit aggregate rebuild PerStatus            with STREAMKIT_APP, or app in pyproject.toml

In: the words of a command line. Out: the same, with the app that the settings name in front where
it was left out. A word is an app if it has the form `module:attribute`, or is the module of the app
that the settings name; where as many words are given as there are arguments, the first one is.
"""

import re
from typing import Any

from typer.core import TyperCommand

from streamkit.cli.running import settings

_APP = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


class AppCommand(TyperCommand):
    """A command that takes the app from the settings where its first argument is left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the app in front."""
        return super().parse_args(ctx, args if "--help" in args else self._with_app(ctx, args))

    def _with_app(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        words: list[str] = []
        for one in arguments:
            value = given.get(one.name)
            words += [value] if isinstance(value, str) else value if type(value) is tuple else ()
        are_all = len(words) == len(arguments) and all(one.nargs == 1 for one in arguments)
        if words and (_APP.fullmatch(words[0]) or are_all):
            return args
        names = (settings().app or "").split()
        if len(names) != 1 or (words and words[0] == names[0].partition(":")[0]):
            return args
        return [names[0], *args]
