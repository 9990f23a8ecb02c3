"""Put the pages of the repository into the site, where they are, and write the reference of names.

The pages link to each other as files of the repository, so that they can be read there, too. The
site has them under the same names, and each file that is no page but linked.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_PAGES = ("*.md", "docs/*.md", "handlers/**/README.md", "deploy/**/README.md", "tests/**/README.md")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_API = "docs/api.md"
_OTHERS = frozenset({"Attr"})
"""Names of other libraries, which have pages of their own."""
_GROUPS = ("app", "entity", "changes", "effects", "table", "settings", "errors")
"""The modules that users import come first, in this order."""


def on_files(files: "Files", config: Any) -> "Files":
    """Return the pages, what they link to, and the reference."""
    pages = sorted({page for pattern in _PAGES for page in ROOT.glob(pattern)})
    linked = {target for page in pages for target in _linked(page)} - {*pages}
    for file in [one for one in files if one.src_dir == config.docs_dir]:
        files.remove(file)
    for path in (*pages, *sorted(linked)):
        files.append(_file(path, config))
    files.append(_made(config, _API, content=_reference()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page without what only tests read: which examples do not run by themselves."""
    return markdown.replace("```python no-run", "```python")


def _file(path: Path, config: Any) -> "File":
    return _made(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))


def _made(config: Any, uri: str, **content: str) -> "File":
    from mkdocs.structure.files import File  # tests read this module without the generator

    return File.generated(config, uri, **content)


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files that a page links to."""
    for target in _LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path


def public_names() -> dict[str, list[str]]:
    """Return the public names by the module that has them, as `streamkit/__init__.py` says."""
    tree = ast.parse((ROOT / "streamkit" / "__init__.py").read_text())
    homes = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    lists = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    found: dict[str, list[str]] = {}
    for name in ast.literal_eval(lists[0]):
        if not name.startswith("__") and name not in _OTHERS:
            found.setdefault(homes.get(name, "streamkit"), []).append(name)
    return found


def _reference() -> str:
    """Return the page of all public names, with the docstrings of each."""
    by_module = public_names()
    order = {f"streamkit.{name}": place for place, name in enumerate(_GROUPS)}
    lines = [
        "# Public names",
        "",
        "All of these are imported from `streamkit`, as is `Attr`, which is boto3's.",
        "",
    ]
    for module in sorted(by_module, key=lambda one: (order.get(one, len(order)), one)):
        lines += [f"## {module.removeprefix('streamkit.')}", ""]
        for name in by_module[module]:
            lines += [f"::: {module}.{name}", ""]
    lines += ["## testing", "", "These are imported from `streamkit.testing`.", ""]
    lines += ["::: streamkit.testing.harness.Harness", "    options:", "      members: true", ""]
    for name in ("trial.trial", "trial.Trouble", "recording.Recorder", "every.every_crash"):
        lines += [f"::: streamkit.testing.{name}", ""]
    return "\n".join(lines)
