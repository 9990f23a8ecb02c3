"""Loading: `MODULE:APP` on the command line becomes the user's `App`.

The current directory comes first on the import path, as with other tools. A missing module and a
module that raises while it is imported give different errors. The traceback of the second shows
the user's frames only.
"""

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

import pydantic

from streamkit.app import App
from streamkit.errors import DeclarationError
from streamkit.model.declaration import named

_REFUSING = (str(Path(__file__).parents[1]), str(Path(pydantic.__file__).parent), "<string>")
"""Code in these places refuses wrong declarations; the code of dataclasses has no file."""


_DECLARED = re.compile(r"^(\w+) *(?::.*)?= *(?:streamkit\.)?App\(", re.MULTILINE)


class AppNotLoaded(Exception):
    """The app could not be imported; the text shows the wrong name or the failing code."""


def load_app(name: str) -> App:
    """Import the app that `MODULE:APP` names, or the only one in `MODULE`.

    Raises:
        AppNotLoaded: there is no such module or app, or the module raised.
    """
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    if not attribute:
        return _only_app(module)
    found: object = module
    for part in attribute.split("."):
        found = _part(found, part)
    if isinstance(found, App):
        return found
    what = "nothing" if found is None else named(found)
    raise AppNotLoaded(f"error: {name} names {what}, not an App;{_offer(module, _apps(module))}")


def with_attribute(name: str) -> str:
    """Return `MODULE:APP` for the name of an app that was loaded, which may be a module alone."""
    if ":" in name:
        return name
    module = import_module(name)
    app = _only_app(module)
    return f"{name}:{next(one for one, value in _apps(module).items() if value is app)}"


def _part(found: object, name: str) -> object:
    """Return a listener of an app, or an attribute: `app.archive` is the archive's writer."""
    if isinstance(found, App) and name in found.listeners:
        return found.listeners[name]
    return getattr(found, name, None)


def import_module(name: str) -> ModuleType:
    """Import a module, from the current directory first.

    Raises:
        AppNotLoaded: the module is not there, or raised.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if Path(name).is_file() or not all(part.isidentifier() for part in name.split(".")):
        hint = name.removesuffix(".py").replace("/", ".").strip(".")
        meant = f"; did you mean {hint}?" if name.endswith(".py") else ""
        raise AppNotLoaded(f"error: {name!r} is not the name of a module{meant}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotLoaded(
                f"error: there is no module {error.name!r} in {here} or on the import path"
            ) from None
        raise AppNotLoaded(_user_traceback(name, error)) from None
    except DeclarationError as error:
        raise AppNotLoaded(f"error: {error}") from None
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        raise AppNotLoaded(_user_traceback(name, error)) from None


def import_demo(name: str) -> ModuleType:
    """Import the demo of a system, which is a folder of the package `handlers`.

    The package is in the current directory, in a wheel inside of streamkit, and in a checkout
    beside it: the first that has such a demo counts.

    Raises:
        AppNotLoaded: the demo is not there (the text lists those that are), or it raised.
    """
    package = Path(__file__).parents[1]
    homes = [Path.cwd(), package / "systems", package.parent]
    found = [demo for home in homes for demo in home.glob("handlers/*/demo.py")]
    chosen = next((demo for demo in found if demo.parent.name == name), None)
    if chosen is None:
        names = ", ".join(sorted({demo.parent.name for demo in found}))
        raise AppNotLoaded(f"error: handlers/ has no system {name!r}; there are {names}")
    sys.path.insert(0, str(chosen.parents[2]))
    try:
        return importlib.import_module(f"handlers.{name}.demo")
    except ModuleNotFoundError as error:
        raise AppNotLoaded(
            f"error: the system {name} needs {error.name!r}, which is an extra of streamkit"
        ) from None


def _only_app(module: ModuleType) -> App:
    apps = _apps(module)
    children = {id(one) for app in apps.values() for one in app.listeners.values()}
    apps = {name: app for name, app in apps.items() if id(app) not in children}
    if len(set(map(id, apps.values()))) == 1:
        return next(iter(apps.values()))
    found = "no App" if not apps else f"{len(apps)} Apps"
    raise AppNotLoaded(f"error: {module.__name__} has {found};{_offer(module, apps)}")


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _offer(module: ModuleType, apps: dict[str, App]) -> str:
    """Say which apps there are, in the module or in those of the package that it is."""
    named = [f"{module.__name__}:{name}" for name in sorted(apps)] or [
        f"{module.__name__}.{path.stem}:{name}"
        for folder in getattr(module, "__path__", ())
        for path in sorted(Path(folder).glob("*.py"))
        for name in _DECLARED.findall(path.read_text("utf-8", "replace"))
    ]
    if not named:
        return f" create one in {module.__name__}, as in app = App('name', table='table')"
    return " use " + " or ".join(named)


def _user_traceback(name: str, error: Exception) -> str:
    """Return the traceback from the user's module on."""
    if isinstance(error, SyntaxError):
        text = "".join(traceback.format_exception_only(error)).rstrip()
        return f"error: {name} is not valid Python\n{text}"
    frames = error.__traceback__
    while frames is not None and _is_machinery(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    shown = traceback.format_exception(
        type(error), error, frames or error.__traceback__, limit=_of_the_user(frames, error)
    )
    return f"error: {name} raised while it was imported\n{''.join(shown).rstrip()}"


def _of_the_user(frames: TracebackType | None, error: Exception) -> int | None:
    """Return how many frames to show; if streamkit or pydantic refuse a value, theirs are cut."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(frames)]
    users = [n for n, file in enumerate(files, 1) if not file.startswith(_REFUSING)]
    refusals = (ValueError, TypeError, pydantic.errors.PydanticUserError)
    return users[-1] if users and isinstance(error, refusals) else None


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen") or "importlib" in filename
