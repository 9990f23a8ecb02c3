"""What is built is what people install: the wheel alone plays the examples, from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder]
    command = [*pip, "wheel", *options, ROOT]
    subprocess.run(command, check=True, capture_output=True, timeout=170)
    (built,) = folder.glob("*.whl")
    return built


def names_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_all_modules_and_systems_and_nothing_beside_streamkit(wheel):
    names = names_of(wheel)
    modules = {f"{path.relative_to(ROOT)}" for path in (ROOT / "streamkit").rglob("*.py")}
    systems = {
        f"streamkit/systems/{path.relative_to(ROOT)}" for path in (ROOT / "handlers").rglob("*.py")
    }
    project = {
        f"{path.relative_to(ROOT)}" for path in (ROOT / "streamkit/cli/project").rglob("*.template")
    }
    assert len(project) > 10
    assert modules | systems | project <= names
    tops = {name.partition("/")[0] for name in names}
    assert [top for top in tops if not top.startswith("streamkit")] == []
    assert not [name for name in names if "__pycache__" in name]


def test_a_demo_is_played_from_another_folder_with_what_the_wheel_has(wheel, tmp_path):
    home, empty = tmp_path / "installed", tmp_path / "empty"
    (empty / "handlers").mkdir(parents=True)  # the user's, which has nothing to do with the demo's
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    done = subprocess.run(
        [sys.executable, "-m", "streamkit", "demo", "shop", "--writes", "40"],
        check=False,
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    assert "0 differences after" in done.stdout
