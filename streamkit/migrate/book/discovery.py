"""Run the files of the folder `migrations/` beside the app: numbers in order, then names.

    deals/app.py                          app = App("deals", table="BigTimeDeals")
    deals/migrations/0001_status_date.py  from deals.app import app
                                          @app.migration("0001", Order) ...
    deals/migrations/totals.py            ... @app.migration("totals", Order) ...

A file without a number is one of a migration if it declares one with its own name; others are left
alone. In: an app. Out: `app.migrations` holds what the files declare. A file that the app's own
code has imported is not run again; migrations may also be declared elsewhere. On failure:
`DiscoveryError`; for a file that raises, with the file's own part of the traceback.
"""

import importlib.util
import re
import sys
import traceback
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from streamkit.app import App
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.kinds.migration import FILE, rank

FOLDER = "migrations"
"""The folder of migrations, beside the module that declares the app."""

_NUMBERED = re.compile(r"\d.*\.py")


class DiscoveryError(ConfigurationError):
    """A file of a migration is wrong; the text names the file and the reason."""


def folder_of(app: App) -> Path:
    """Return the folder of an app's migrations, whether it has any or not."""
    return Path(app.declared.file).resolve().parent / FOLDER


def files_of(app: App) -> dict[str, Path]:
    """Return the files of an app's migrations by number or name, in order; none is run.

    Raises:
        DiscoveryError: a number is used twice, or a name is not that of a migration.
    """
    found: dict[int, Path] = {}
    numbers: dict[str, Path] = {}
    for path in sorted(folder_of(app).glob("*.py")):
        match = FILE.fullmatch(path.name)
        if match is None:
            if _NUMBERED.fullmatch(path.name):
                raise DiscoveryError(
                    f"{path}: a migration's file is named with three digits or more and a name in"
                    " small letters, as in 0003_order_status.py"
                )
            if re.search(rf"migration\(\s*[\"']{re.escape(path.stem)}[\"']", path.read_text()):
                numbers[path.stem] = path
            continue
        number = int(match[1])
        if number in found:
            raise DiscoveryError(
                f"{path}: {found[number].name} has the same number; give the one that no table has"
                " had yet the next number, in its file's name and in @app.migration"
            )
        found[number] = path
        numbers[match[1]] = path
    return dict(sorted(numbers.items(), key=lambda one: rank(one[0])))


def discover(app: App) -> dict[str, Path]:
    """Run the files of an app's migrations, and return them by number.

    Apps of one module share the folder; each has what is declared on it.

    Raises:
        DiscoveryError: a file raises, or does not declare the migration that its name says.
    """
    files = files_of(app)
    for number, path in files.items():
        known = app.migrations.get(number)
        if known is not None and Path(known.declared.file).resolve() == path:
            continue
        before = set(app.migrations)
        module = _run(path)
        if number in app.done_everywhere and set(app.migrations) == before:
            continue
        if set(app.migrations) != before or not _is_anothers(app, number, module):
            _require_own(app, number, path, before)
    return {number: path for number, path in files.items() if number in app.migrations}


def _is_anothers(app: App, number: str, module: ModuleType) -> bool:
    """Return whether a file is one of another app, which shares the folder: also if squashed."""
    apps = (one for one in vars(module).values() if isinstance(one, App) and one is not app)
    return any(number in {*one.migrations, *one.done_everywhere} for one in apps)


def _run(path: Path) -> ModuleType:
    """Run a file as a module of its own, once."""
    digest = blake2b(str(path).encode(), digest_size=4).hexdigest()
    name = f"streamkit_migrations_{digest}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DiscoveryError(f"{path} cannot be read as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, DeclarationError):  # its text names the file, the line and the reason
            raise DiscoveryError(str(error)) from error
        raise DiscoveryError(
            f"{path} raised while it was run\n{_traceback(path, error)}"
        ) from error
    return module


def _require_own(app: App, number: str, path: Path, before: set[str]) -> None:
    """Check that a file has declared the migration that its name says.

    Raises:
        DiscoveryError: it declares another migration, or none of this app.
    """
    declared = sorted(set(app.migrations) - before)
    if declared == [number]:
        return
    for one in declared:
        del app.migrations[one]
    if not declared:
        raise DiscoveryError(
            f"{path} declares no migration of {app.name}; it says @app.migration({number!r}, ...),"
            f" with the app of {app.declared.file} imported by the name that the command is given"
        )
    raise DiscoveryError(
        f"{path} declares {', '.join(declared)}; a file declares only the migration of its name,"
        f" {number}"
    )


def _traceback(path: Path, error: Exception) -> str:
    """Return an error's traceback, beginning in the file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
        frames = frames.tb_next
    if frames is None and isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip()
    shown = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return "".join(shown).rstrip()
