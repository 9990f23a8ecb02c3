"""`streamkit new shop` writes a project that is typed and formatted, and whose tables fit its app.

That its own tests pass by its makefile is seen where the tutorial is followed, in
`test_tutorial.py`; that cfn-lint finds nothing in its table, with all other templates in
`test_deploy_templates.py`.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from streamkit.core.table_shape import TableShape, entities_of
from tests.acceptance.conftest import clean_environment, in_this_process
from tests.pages import ROOT


def run(folder, *command, **more):
    return subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT), **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


def streamkit(folder, *arguments):
    return in_this_process(folder, *arguments, env=clean_environment())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    done = streamkit(folder, "new", "my_shop")
    assert done.returncode == 0, done.stderr
    where = os.path.relpath(sys.prefix, folder / "my_shop")
    assert f"next: cd my_shop && make install test dev VENV={where}\n" in done.stdout
    return folder / "my_shop"


@pytest.fixture(scope="module")
def wanted(project):
    """The table that the project's app needs."""
    sys.path.insert(0, str(project))
    try:
        app = importlib.import_module("my_shop.handlers").app
    finally:
        sys.path.remove(str(project))
    return TableShape().create_table(app.table, entities_of(app))


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_new_project_and_its_tests_are_typed(project, checker, pytestconfig):
    if checker == "mypy":  # reads only those sources again that have changed since the last run
        known = str(pytestconfig.cache.mkdir("mypy"))
        command = [checker, "--strict", "--cache-dir", known, "my_shop", "tests"]
    else:
        interpreter = ["--pythonpath", sys.executable]
        strict = {
            "typeCheckingMode": "strict",
            "extraPaths": [str(ROOT)],
            "include": ["my_shop", "tests"],
        }
        (project / "pyrightconfig.json").write_text(json.dumps(strict))
        command = [checker, *interpreter, "--project", "pyrightconfig.json"]
    done = run(project, sys.executable, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_project_names_its_app_so_that_commands_find_it(project):
    done = streamkit(project, "describe")
    assert done.returncode == 0, done.stderr
    assert "my_shop on table MyShop" in done.stdout
    assert "shipped" in done.stdout


def test_each_file_of_the_project_is_formatted_and_names_no_template(project):
    files = [file for file in project.rglob("*") if file.is_file() and "cache" not in str(file)]
    assert len(files) >= 11
    for file in files:
        assert not re.search(r"\$(name|table)", file.read_text()), file
    python = [str(file) for file in files if file.suffix == ".py"]
    checked = ["check", "--isolated", "--select", "E,F,I", "--line-length", "100", *python]
    assert run(project, "ruff", *checked, PATH=_path()).returncode == 0
    formatted = ["format", "--isolated", "--check", "--line-length", "100", *python]
    assert run(project, "ruff", *formatted, PATH=_path()).returncode == 0


def _path():
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's own tags as plain values."""


Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def test_the_cloudformation_table_is_the_one_that_the_app_needs(project, wanted):
    file = project / "table" / "cloudformation.yaml"
    table = yaml.load(file.read_text(), Loader)["Resources"]["Table"]["Properties"]
    for name in ("TableName", "KeySchema", "GlobalSecondaryIndexes", "BillingMode"):
        assert table[name] == wanted[name]
    by_name = {one["AttributeName"]: one for one in table["AttributeDefinitions"]}
    assert by_name == {one["AttributeName"]: one for one in wanted["AttributeDefinitions"]}
    view = wanted["StreamSpecification"]["StreamViewType"]
    assert table["StreamSpecification"] == {"StreamViewType": view}


def test_the_terraform_and_cdk_tables_have_the_same_keys_indexes_and_stream(project, wanted):
    terraform = (project / "table" / "table.tf").read_text()
    cdk = (project / "table" / "cdk_table.py").read_text()
    compile(cdk, "cdk_table.py", "exec")
    names = {one["AttributeName"] for one in wanted["AttributeDefinitions"]}
    assert set(re.findall(r'attribute \{\s+name = "(\w+)"', terraform)) == names
    assert set(re.findall(r'text\("(\w+)"\)', cdk)) == names
    assert re.findall(r'(?:hash|range)_key\s+= "(\w+)"', terraform) == [
        one["AttributeName"]
        for schema in (wanted["KeySchema"], wanted["GlobalSecondaryIndexes"][0]["KeySchema"])
        for one in schema
    ]
    for text in (terraform, cdk):
        assert wanted["TableName"] in text
        assert "NEW_AND_OLD_IMAGES" in text
        assert "GSI1" in text


@pytest.mark.parametrize("name", ["Shop", "my-shop", "class", "1shop", "a/b"])
def test_a_name_that_no_module_can_have_is_refused(tmp_path, name):
    done = streamkit(tmp_path, "new", name)
    assert done.returncode == 2
    assert "is not the name of a module" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_not_overwritten(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    done = streamkit(tmp_path, "new", "shop")
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [file.name for file in (tmp_path / "shop").iterdir()] == ["mine.txt"]
