"""Put the pages of the repository into a folder for the site, and write the reference of names.

The pages link to each other as files of the repository, so that they can be read there, too. The
site has them under the same names, and each file that is no page but linked.

    python docs/site.py build/pages
"""

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PAGES = ("*.md", "docs/*.md", "handlers/**/README.md", "deploy/**/README.md", "tests/**/README.md")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_API = "docs/api.md"
_WORKER = "docs/iframe-worker.js"
"""Without it the generator takes the same from another host, so that a search would need it."""
_OTHERS = frozenset({"Attr"})
"""Names of other libraries, which have pages of their own."""
_GROUPS = ("app", "entity", "changes", "effects", "table", "settings", "errors")
"""The modules that users import come first, in this order."""


def write_pages(folder: Path) -> None:
    """Write the pages, what they link to, and the reference into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = sorted({page for pattern in _PAGES for page in ROOT.glob(pattern)})
    linked = {target for page in pages for target in _linked(page)} - {*pages}
    for path in (*pages, *sorted(linked)):
        there = folder / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    for path in pages:  # only tests read which examples do not run by themselves
        text = path.read_text().replace("```python no-run", "```python")
        (folder / path.relative_to(ROOT)).write_text(text)
    shutil.copy(ROOT / _WORKER, folder / _WORKER)
    (folder / _API).write_text(_reference())


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


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
