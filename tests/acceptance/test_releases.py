"""Releases: the workflows, the page and the package name the same versions; scripts are programs."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from streamkit import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs" / "releases.md").read_text()
WORKFLOWS = sorted(path.stem for path in (ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted((ROOT / ".ci").iterdir())


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def steps(job):
    return [step.get("uses", step.get("run", "")) for step in job["steps"]]


def versions_of(text):
    return re.findall(r"3\.\d+", text)


def test_ci_tests_and_packages_every_version_of_python_that_the_package_names():
    named = [one for text in PROJECT["classifiers"] for one in versions_of(text)]
    (row,) = re.findall(r"^\| Python \| (.+?) \|", PAGE, re.MULTILINE)
    assert versions_of(row) == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    jobs = workflow("ci")["jobs"]
    for job in ("check", "package"):
        assert jobs[job]["strategy"]["matrix"]["python"] == named
    assert "make check PYTHON=python" in steps(jobs["check"])
    assert ".ci/package python dist" in steps(jobs["package"])
    assert ".ci/sdk python" in steps(jobs["sdk"])


def test_a_release_is_published_only_after_tests_and_a_version_that_all_name():
    jobs = workflow("release")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in workflow("ci")[True], "YAML reads `on` as a truth"
    for name in ("publish", "image"):
        assert set(jobs[name]["needs"]) == {"test", "version"}
        assert jobs[name]["environment"] == "release"
    assert any(".ci/version" in step for step in steps(jobs["version"]))


def test_the_image_has_a_list_of_contents_and_is_signed_by_its_digest():
    job = workflow("release")["jobs"]["image"]
    (build,) = [step for step in job["steps"] if "build-push-action" in step.get("uses", "")]
    assert build["with"]["sbom"] is True
    assert build["with"]["file"] == "deploy/Dockerfile"
    sign = job["steps"][-1]
    assert sign["run"].startswith("cosign sign")
    assert "$DIGEST" in sign["run"]
    assert f"steps.{build['id']}.outputs.digest" in sign["env"]["DIGEST"]
    assert job["permissions"]["id-token"] == "write"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_may_write_by_default_and_every_action_is_pinned_by_its_hash(name):
    """A tag can be moved to other code, which then publishes what it likes."""
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    assert workflow(name)["permissions"] == {"contents": "read"}
    used = re.findall(r"uses: (.+)", text)
    ours = [one for one in used if one.startswith("./")]
    assert all((ROOT / one).exists() for one in ours)
    pins = [one for one in used if one not in ours]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in pins)
    of = {one.partition("@")[0]: one for one in pins}
    assert set(pins) == set(of.values()), "one version of each action"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_the_steps_of_a_workflow_name_is_there(name):
    targets = re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    jobs = workflow(name)["jobs"]
    for job in jobs.values():
        assert set(job.get("needs", ())) <= jobs.keys()
        for step in job.get("steps", ()):
            run, given = step.get("run", ""), step.get("with", {})
            assert set(re.findall(r"\bmake (\w+)", run)) <= set(targets)
            assert all((ROOT / found).exists() for found in re.findall(r"\.ci/\w+", run))
            assert "file" not in given or (ROOT / given["file"]).exists()
            assert "${{" not in run, "text from outside is no part of a script: give it by env"
            if "actions/checkout" in step.get("uses", ""):
                assert given["persist-credentials"] is False


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_of_ci_is_a_program_that_stops_at_the_first_error(script):
    subprocess.run(["bash", "-n", script], check=True)
    assert "set -euo pipefail" in script.read_text()
    assert script.stat().st_mode & 0o111


def version(*arguments):
    command = [ROOT / ".ci" / "version", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tag_that_package_or_changelog_do_not_name_is_refused():
    assert version(__version__).returncode == 0
    assert version("9.9.9").returncode == 1
    notes = version("--notes", __version__).stdout
    assert notes.strip()
    assert "Unreleased" not in notes
