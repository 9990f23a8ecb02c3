"""The pages for people: those at the top and `docs/`; what tests read in them."""

import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[1]
AT_THE_TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PATHS = [*map(ROOT.joinpath, AT_THE_TOP), *sorted(ROOT.glob("docs/*.md"))]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in PATHS}


def examples(page, language="python"):
    """Return the code blocks of a page, or of any text."""
    return re.findall(rf"```{language}\n(.*?)```", PAGES.get(page, page), re.DOTALL)


def example(page, text):
    """Return the first example of a page that has this in it."""
    return next(block for block in examples(page) if text in block)


def section(page, heading):
    """Return what stands below a heading, up to the next one of its level."""
    return PAGES[page].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text):
    """Return the cells of all rows of all tables in a text."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def module_of(*blocks, name="page_example"):
    """Run blocks as one module, and return its names."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    for block in blocks:
        exec(compile(block, name, "exec"), vars(module))
    return vars(module)
