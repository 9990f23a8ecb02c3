"""The package of `deploy/lambda/Makefile`: what is in it, what is not, and that it runs by itself."""

import ast
import json
import re
import subprocess
import sys
from contextlib import closing

import pytest

from handlers.deals.handlers import SHAPE, app
from streamkit.core.table_shape import entities_of
from tests.acceptance.conftest import clean_environment, client_of, local_engine
from tests.acceptance.deployment import README
from tests.acceptance.lambda_package import package

COMMANDS_ONLY = {"typer", "rich", "pygments", "shellingham"}
EXTRAS = {"greenlet", "httpx", "opentelemetry", "sqlalchemy"}
"""What streamkit's extras bring."""
LIMIT = 250 * 1024 * 1024
"""Bytes of an unzipped function, as Lambda allows."""
RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import functions, migrations

class Context:
    def get_remaining_time_in_millis(self):
        return 60_000

event = json.loads(sys.argv[2])
for _ in range(2):
    assert functions.stream(event, Context()) == {"batchItemFailures": []}
assert functions.maintenance({}, Context())["queues"] == 0
try:
    migrations.migration({"migration": "0003"}, Context())
except Exception as error:  # this app has none
    assert type(error).__name__ == "ConfigurationError", error
else:
    raise SystemExit("a migration that nobody has written was begun")
print(json.dumps({name.partition(".")[0]: str(getattr(module, "__file__", None))
                  for name, module in sorted(sys.modules.items())}))
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lambda") / "build"
    package(folder)
    return folder


def size_of(path):
    if path.is_dir():
        return sum(size_of(one) for one in path.iterdir() if one.name != "__pycache__")
    return path.stat().st_size


def test_the_package_holds_the_app_and_nothing_of_commands_or_of_the_local_engine(build):
    there = {path.name for path in build.iterdir()}
    assert {"functions.py", "migrations.py", "handlers", "streamkit", "aiobotocore"} <= there
    assert there & COMMANDS_ONLY == set()
    parts = {path.name for path in (build / "streamkit").iterdir()}
    assert {"aws_lambda", "migrate", "sinks"} <= parts
    assert parts & {"cli", "local", "systems", "testing", "__pycache__"} == set()
    assert not build.with_name("build-wheel").exists()


def imports_of(path):
    """The packages that a module may import, at once or later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_whatever_is_imported_is_in_the_package_however_late(build):
    own = [build / "functions.py", build / "migrations.py", *(build / "streamkit").rglob("*.py")]
    wanted = {name for path in own for name in imports_of(path)}
    gone = re.compile(r"streamkit\.(cli|local|testing)\b")
    assert {name for name in wanted if gone.match(name)} == set()
    there = {path.stem for path in build.iterdir()} | set(sys.stdlib_module_names)
    assert {name.partition(".")[0] for name in wanted} - there <= EXTRAS


def test_the_package_is_as_large_as_the_readme_says_and_lambda_allows(build):
    size = size_of(build)
    (said,) = re.findall(r"(\d+) MB unzipped", README)
    assert size < LIMIT
    assert size / 1e6 == pytest.approx(int(said), rel=0.15)


def like(brand, user):
    key = {"S": f"BRANDLIKE#{brand}#{user}"}
    return {"PK": key, "SK": key, "brand": {"S": brand}, "username": {"S": user}}


def record(item, stream):
    return {
        "eventID": "1",
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": stream,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_800_000_000,
            "Keys": {name: item[name] for name in ("PK", "SK")},
            "NewImage": item,
            "SequenceNumber": "300000000000000000001",
            "SizeBytes": 100,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


@pytest.fixture
def engine(tmp_path):
    """One of its own: where workers run the consumer, functions refuse to."""
    with local_engine(tmp_path) as exported:
        yield exported


def run(build, event, environment):
    """Run the functions in a fresh Python that has nothing but the package."""
    python = [sys.executable, "-I", "-S", "-B", "-c", RUN]
    done = subprocess.run(
        [*python, build, json.dumps(event)],
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_functions_of_the_package_run_with_nothing_but_the_package(build, engine):
    with closing(client_of(engine)) as dynamodb:
        dynamodb.create_table(**SHAPE.create_table(app.table, entities_of(app)))
        stream = dynamodb.describe_table(TableName=app.table)["Table"]["LatestStreamArn"]
        event = {"Records": [record(like("packaged", "ann"), stream)]}
        loaded = run(build, event, engine)
        key = {name: {"S": "BRANDLIKES#packaged"} for name in ("PK", "SK")}
        count = dynamodb.get_item(TableName=app.table, Key=key)["Item"]
    assert loaded["streamkit"].startswith(str(build))
    assert set(loaded) & COMMANDS_ONLY == set()
    assert count["likes"] == {"N": "1"}
