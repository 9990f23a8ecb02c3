"""A program that runs commands of the `streamkit` that it finds, and prints what they say as JSON.

In, on stdin: a list of commands, each a list of arguments. Out: for each its exit code and what it
printed; and the fingerprints of the apps in `handlers/` and on the pages, by name.
"""

import contextlib
import importlib
import io
import json
import sys
import types
from datetime import date
from pathlib import Path
from unittest import mock

from streamkit import App
from streamkit.cli import main
from tests import pages
from tests.hurried import hurried


def said(arguments):
    """Run one command; return its exit code and its output."""
    out, code = io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["streamkit", *arguments]),
        contextlib.redirect_stdout(out),
        hurried(alone=True),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    return code, out.getvalue()


def fingerprints():
    """Return a fingerprint for each app that there is to be seen, and for each of its aggregates."""
    found = dict(_handlers()) | dict(_examples())
    return {name: _told(app) for name, app in found.items()}


def _told(app):
    definitions = {handler.name: handler.definition for handler in app.handlers}
    listeners = {name: _told(one) for name, one in app.listeners.items()}
    return [app.fingerprint(), app.name, definitions, listeners]


def _handlers():
    for path in sorted((pages.ROOT / "handlers").glob("*/handlers.py")):
        name = f"handlers.{path.parent.name}"
        module = importlib.import_module(f"{name}.handlers")
        yield name, getattr(module, "app", None) or module.app_for(date(2027, 1, 15))


def _examples():
    for page in pages.PAGES:
        for number, block in enumerate(pages.examples(page)):
            if "= App(" not in block:
                continue
            module = types.ModuleType(f"example_{len(sys.modules)}")
            sys.modules[module.__name__] = module
            with contextlib.suppress(Exception):  # some show a part of a module alone
                exec(compile(block, module.__name__, "exec"), vars(module))
            apps = [app for app in vars(module).values() if isinstance(app, App)]
            yield from ((f"{page} {number} {app.name}", app) for app in apps)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(
        json.dumps(
            {
                "package": str(Path(importlib.import_module("streamkit").__file__).parent),
                "said": [said(arguments) for arguments in asked],
                "fingerprints": fingerprints() if not asked else None,
            }
        )
    )
