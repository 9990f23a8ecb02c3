"""docs/tutorial.md: every command is run, in its order, from an empty folder."""

import re
import signal
import subprocess
import sys
import sysconfig

import pytest

from tests.acceptance.conftest import DEADLINE, Process, clean_environment
from tests.pages import PAGES, ROOT

PAGE = PAGES["docs/tutorial.md"]
BLOCKS = re.findall(r"```(console|python no-run)\n(.*?)```", PAGE, re.DOTALL)
FILES = ("tests/test_handlers.py", "shop/entities.py", "shop/handlers.py")
"""Where the examples of the third step go, as the page says before each."""


def run(folder, command):
    """Run a command as the page prints it; packages come from this environment, not a network."""
    settings = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    settings |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the reader has none of our plugins
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=clean_environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder, beside a checkout."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "streamkit").symlink_to(ROOT)
    return folder


def test_each_command_of_the_page_works_in_its_order(folder):
    blocks = iter(BLOCKS)

    def next_of(kind):
        found, text = next(blocks)
        assert found == kind
        return text

    # 1. Install it. What pip would download is in this environment already, and so is pip itself.
    make, install = next_of("console").splitlines()
    run(folder, f"{make.replace('python3', sys.executable)} --without-pip")
    (known,) = folder.glob(".venv/lib/python*/site-packages")
    (known / "known.pth").write_text(sysconfig.get_path("purelib"))
    pip = folder / ".venv" / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {pip.with_name("python")} -m pip "$@"\n')
    pip.chmod(0o755)
    run(folder, install)

    # 2. Begin a project.
    new, _cd, test = next_of("console").splitlines()
    run(folder, new)
    project = folder / "shop"
    assert "2 passed" in run(project, test)
    described = run(project, next_of("console"))
    assert "shipped" in described

    # 3. Add a rule; the test fails before the handler is there.
    for number, name in enumerate(FILES):
        file = project / name
        file.write_text(f"{file.read_text()}\n\n{next_of('python no-run')}")
        if number == 1:
            with pytest.raises(AssertionError, match="regular"):
                run(project, test)
    assert "3 passed" in run(project, next_of("console"))

    # 4. Break it.
    file = project / FILES[0]
    before, _, mine = file.read_text().rpartition("def test_")
    changed = mine.replace("    harness.settle()\n", next_of("python no-run"))
    assert changed != mine
    file.write_text(f"{before}def test_{changed}")
    assert "3 passed" in run(project, next_of("console"))

    # 5. Run it, on ports that are free here.
    command = next_of("console").split()
    assert command[:2] == ["../.venv/bin/streamkit", "dev"]
    options = ["0" if one == "8000" else one.replace("8080", "0") for one in command[2:]]
    write = next_of("python no-run")
    with_engine(project, options, write)
    assert next(blocks, None) is None


def with_engine(project, options, write):
    environment = clean_environment(PYTHONPATH=str(ROOT))
    process = Process(["dev", *options], cwd=project, env=environment)
    try:
        process.wait_for("AWS_SECRET_ACCESS_KEY")
        exported = dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(process.lines)))
        process.wait_for("shard.taken")
        read = (
            "import time\nfor _ in range(300):\n"
            "    found = table.get_item(Key={'PK': 'CUSTOMER#ann', 'SK': 'ORDERS'}).get('Item')\n"
            "    if found: break\n    time.sleep(0.2)\nprint(found['orders'])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", f"{write}\n{read}"],
            env={**environment, **exported},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        assert done.stdout == "1\n", done.stderr
        process.signal(signal.SIGINT)
        assert process.exit_code() == 0
    finally:
        process.close()
