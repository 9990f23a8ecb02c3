"""Makes the Lambda package as `deploy/lambda/Makefile` does, without a network.

`python lambda_package.py -m pip …` stands for its Python: the wheel is built here, and dependencies
are those of this environment, linked to where pip would put them.
"""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"


def package(folder):
    """Run `make package`, into a folder."""
    python = f"{sys.executable} {Path(__file__).resolve()}"
    subprocess.run(
        ["make", "-C", DEPLOY / "lambda", "package", f"BUILD={folder}", f"PYTHON={python}"],
        check=True,
        capture_output=True,
        timeout=170,
    )


def needed(name, extras=(), known=None):
    """The distributions that one needs, by name, as far as they are of this platform."""
    from packaging.requirements import Requirement

    known = {} if known is None else known
    try:
        found = known[name] = distribution(name)
    except PackageNotFoundError:
        return known
    for text in found.requires or ():
        one = Requirement(text)
        wanted = not one.marker or any(one.marker.evaluate({"extra": e}) for e in ("", *extras))
        if wanted and one.name not in known:
            needed(one.name, one.extras, known)
    return known


def link(folder):
    """Put what streamkit needs into a folder."""
    for name, found in needed("streamkit").items():
        files = [] if name == "streamkit" else found.files
        tops = {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link_ = folder / top
            if not link_.exists():
                link_.symlink_to(Path(found.locate_file(top)).resolve())


def main():
    """Do what pip is asked for."""
    words = sys.argv[1:]
    pip = [sys.executable, *words, "--disable-pip-version-check"]
    if "wheel" in words:
        subprocess.run([*pip, "--no-build-isolation"], check=True)
        return
    subprocess.run([*pip, "--no-deps", "--no-index"], check=True)
    assert re.search(r"streamkit-[\w.-]+\.whl$", words[-1])
    link(Path(words[words.index("--target") + 1]))


if __name__ == "__main__":
    main()
