"""`make aws` on the engine, over HTTP, in the way in which it runs in an account."""

import subprocess
import sys

import pytest

from tests.acceptance import account
from tests.acceptance.conftest import clean_environment
from tests.acceptance.deployment import ROOT


def suite(*arguments, **environment):
    command = [sys.executable, "-m", "tests.acceptance.account", *arguments]
    known = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(**known, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


def test_the_suite_and_a_small_fleet_run_under_a_prefix_and_leave_nothing(server, dynamodb):
    before = set(dynamodb.list_tables()["TableNames"])
    files = ("tests/acceptance/test_small_fleet.py", "tests/acceptance/test_cli_cost.py")
    done = suite("--endpoint", server["AWS_ENDPOINT_URL_DYNAMODB"], *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("it costs at most $")
    assert "all names begin with streamkit-suite-" in done.stdout
    assert "everything is deleted" in done.stdout
    assert "skipped" not in done.stdout, "these need nothing that only the engine has"
    assert set(dynamodb.list_tables()["TableNames"]) == before


def test_what_a_failing_run_has_made_is_deleted_too(server, dynamodb, tmp_path):
    (tmp_path / "test_broken.py").write_text(
        "import os\n"
        "import boto3\n"
        "def test_broken():\n"
        "    client = boto3.client('dynamodb')\n"
        "    name = os.environ['AWS_SUITE_PREFIX'] + 'left'\n"
        "    key = [{'AttributeName': 'pk', 'KeyType': 'HASH'}]\n"
        "    types = [{'AttributeName': 'pk', 'AttributeType': 'S'}]\n"
        "    client.create_table(TableName=name, KeySchema=key, AttributeDefinitions=types,\n"
        "                        BillingMode='PAY_PER_REQUEST')\n"
        "    raise AssertionError('on purpose')\n"
    )
    url = server["AWS_ENDPOINT_URL_DYNAMODB"]
    done = suite("--endpoint", url, str(tmp_path / "test_broken.py"))
    assert done.returncode == 1
    assert "everything is deleted" in done.stdout
    assert list(account.tables(dynamodb, account.NAMES)) == []


def test_in_an_account_nothing_begins_before_somebody_agrees_to_the_cost():
    done = suite(AWS_REGION="eu-central-1", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y")
    assert done.returncode == 2
    first, second = done.stdout.splitlines()
    assert f"${account.bound():.2f}" in first
    assert second == f"say that it may: make aws SPEND={account.bound():.2f}"


def test_the_bound_is_what_the_tables_allow_in_the_time_that_it_may_take():
    assert 0.1 < account.bound() < 1.0
    assert account.bound(80) == pytest.approx(2 * account.bound(40))


def test_tables_that_are_not_of_a_run_are_never_deleted(dynamodb):
    with pytest.raises(ValueError, match="no prefix"):
        account.clean(dynamodb, "")
    with pytest.raises(ValueError, match="no prefix"):
        account.clean(dynamodb, "shop")


def test_every_file_of_the_suite_is_there():
    assert [name for name in account.FILES if not (ROOT / name).exists()] == []
