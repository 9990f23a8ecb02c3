"""The site has each page and each public name; what builds it comes from a lock."""

import importlib.util
import re
import tomllib

import yaml

import streamkit
from tests.pages import PAGES, ROOT

spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site.py")
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)


class Loader(yaml.SafeLoader):
    """Reads the tag of a Python function as its arguments."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, _, node: None)
CONFIG = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def pages_of(nav):
    for entry in nav:
        for title, target in entry.items():
            if isinstance(target, list):
                yield from pages_of(target)
            else:
                yield title, target


def test_each_page_stands_in_the_navigation_once_under_a_question():
    found = list(pages_of(CONFIG["nav"]))
    targets = [target for _, target in found]
    assert len(targets) == len(set(targets))
    assert {target for target in targets if target.startswith("docs/")} == {
        "docs/api.md",  # which is made
        *(page for page in PAGES if page.startswith("docs/")),
    }
    assert all(title.endswith("?") for title, _ in found)
    assert all((ROOT / target).exists() for target in targets if target != "docs/api.md")


def test_each_public_name_is_in_the_reference():
    named = {name for names in site.public_names().values() for name in names}
    public = {name for name in streamkit.__all__ if not name.startswith("__")}
    assert named == public - {"Attr"}
    text = site._reference()
    assert all(f".{name}\n" in text for name in named)


def test_the_site_is_strict_and_loads_nothing_from_elsewhere():
    assert CONFIG["strict"] is True
    assert {"search", "offline"} <= {one for one in CONFIG["plugins"] if isinstance(one, str)}
    assert CONFIG["theme"]["font"] is False
    assert "extra_javascript" not in CONFIG
    (worker,) = CONFIG["extra"]["polyfills"]  # else the plugin `offline` names one of another host
    assert "iframe-worker" in worker
    assert "Permission is hereby granted" in (ROOT / worker).read_text(), "its licence asks for it"


def test_what_builds_the_site_is_locked_with_hashes_and_names_no_host():
    lock = (ROOT / "requirements-docs.txt").read_text()
    pins = re.findall(r"^([\w.-]+)(?:\[.*?\])?==", lock, re.MULTILINE)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["docs"]
    assert {re.match(r"[\w-]+", one)[0] for one in wanted} <= set(pins)
    assert len(re.findall(r"^\S.*==.*\\\n    --hash=sha256:", lock, re.MULTILINE)) == len(pins)
    assert "://" not in lock
    assert "make site" in (ROOT / ".ci" / "run").read_text().splitlines()
