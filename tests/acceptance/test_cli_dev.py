"""`streamkit dev` and `local --data`: one terminal, code that reloads, tables that stay."""

import re
import signal
import time
import urllib.request

import pytest

from tests.acceptance.conftest import DEADLINE, Process, clean_environment, client_of

APP = """
from typing import Annotated

from streamkit import Aggregate, App, Count, Entity, Inserted

app = App("deals", table="Deals")


class Like(Entity, pk="LIKE#{brand}#{username}", sk="LIKE"):
    brand: str
    username: str


@app.aggregate
class Likes(Aggregate[Like], pk="LIKES#{brand}", sk="LIKES"):
    brand: str
    likes: Annotated[int, Count()] = 0


@app.on
def greet(change: Inserted[Like]) -> None:
    if change.new.username == "nobody":
        raise ValueError("no such person")
"""


def put(dynamodb, username):
    key = {"PK": {"S": f"LIKE#ACME#{username}"}, "SK": {"S": "LIKE"}}
    item = {**key, "brand": {"S": "ACME"}, "username": {"S": username}}
    dynamodb.put_item(TableName="Deals", Item=item)


def wait_for_likes(dynamodb, wanted):
    end = time.monotonic() + DEADLINE
    key = {"PK": {"S": "LIKES#ACME"}, "SK": {"S": "LIKES"}}
    while True:
        item = dynamodb.get_item(TableName="Deals", Key=key).get("Item")
        if item is not None and int(item["likes"]["N"]) == wanted:
            return
        assert time.monotonic() < end, f"{item} after {DEADLINE} s"
        time.sleep(0.03)


@pytest.fixture
def dev(tmp_path):
    """Start `streamkit dev` in a folder with an app; all are ended at the end."""
    (tmp_path / "deals.py").write_text(APP)
    started = []

    def start():
        command = ["dev", "deals:app", "--port", "0", "--page", "127.0.0.1:0"]
        process = Process(command, cwd=tmp_path, env=clean_environment())
        started.append(process)
        process.wait_for("AWS_SECRET_ACCESS_KEY")
        exported = dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(process.lines)))
        process.wait_for("shard.taken")
        return process, client_of(exported)

    yield start
    for process in started:
        process.close()


def test_dev_serves_tables_a_worker_and_the_page_and_keeps_the_tables(dev):
    process, dynamodb = dev()
    listening = next(line for line in process.lines if "health.listening" in line)
    port = re.search(r'"port": (\d+)', listening)[1]
    page = f"http://127.0.0.1:{port}/"
    assert "deals" in urllib.request.urlopen(page, timeout=DEADLINE).read().decode()
    put(dynamodb, "ann")
    wait_for_likes(dynamodb, 1)
    process.signal(signal.SIGINT)
    assert process.exit_code() == 0
    again, dynamodb = dev()
    wait_for_likes(dynamodb, 1)
    put(dynamodb, "bob")
    wait_for_likes(dynamodb, 2)
    again.signal(signal.SIGTERM)
    assert again.exit_code() == 0


def test_dev_shows_the_traceback_of_your_code_and_starts_again_with_changed_code(dev, tmp_path):
    process, dynamodb = dev()
    put(dynamodb, "nobody")
    process.wait_for("greet raised. Traceback of your code")
    process.wait_for('raise ValueError("no such person")')
    file = tmp_path / "deals.py"
    (tmp_path / "script.py").write_text("the app does not import it")
    file.write_text(APP.replace("app = App(", "app = Ap("))
    process.wait_for("changed deals.py: the worker starts again")
    process.wait_for("NameError: name 'Ap' is not defined")
    process.wait_for("the worker has ended; it starts again when a Python file changes")
    file.write_text(APP)
    process.wait_for("shard.taken")
    put(dynamodb, "ann")
    wait_for_likes(dynamodb, 2)
    process.signal(signal.SIGINT)
    assert process.exit_code() == 0


def test_an_app_that_is_not_named_is_a_usage_error(shop):
    done = shop.run("dev")
    assert done.returncode == 2
    assert "STREAMKIT_APP" in done.stderr


@pytest.mark.parametrize("command", ["local", "dev"])
def test_a_port_that_there_is_none_of_is_a_usage_error(shop, command):
    done = shop.run(command, "--port", "65536")
    assert done.returncode == 2
    assert "65535" in done.stderr


def test_data_of_another_version_is_a_usage_error_that_says_what_to_do(shop):
    folder = shop.folder / "data"
    folder.mkdir()
    (folder / "engine").write_bytes(b"streamkit 0.0.1\n...")
    done = shop.run("local", "--port", "0", "--data", str(folder))
    assert done.returncode == 2
    assert "delete it" in done.stderr
