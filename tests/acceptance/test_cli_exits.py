"""What goes wrong is said in words, by whose fault it is, with an exit code that scripts can use."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest


def write(shop, name, text):
    (shop.folder / name).write_text(text)


def test_a_module_that_is_not_there_is_told_from_one_that_raises(shop):
    missing = shop.run("check", "nowhere:app")
    assert missing.returncode == 3
    assert "no module 'nowhere'" in missing.stderr
    assert "Traceback" not in missing.stderr
    write(
        shop, "raising.py", "import shop\n\n\ndef build():\n    return 1 / 0\n\n\napp = build()\n"
    )
    raising = shop.run("check", "raising:app")
    assert raising.returncode == 3
    assert "raising raised while it was imported" in raising.stderr
    assert "ZeroDivisionError" in raising.stderr
    assert "in build" in raising.stderr
    assert "importlib" not in raising.stderr
    assert "streamkit/cli" not in raising.stderr


def test_a_module_that_misses_one_of_its_own_imports_is_shown_with_its_line(shop):
    write(shop, "needy.py", "import no_such_library\n")
    done = shop.run("check", "needy")
    assert done.returncode == 3
    assert "needy raised" in done.stderr
    assert "No module named 'no_such_library'" in done.stderr


def test_a_mistake_in_a_declaration_is_named_with_its_line_and_without_a_traceback(shop):
    write(
        shop,
        "wrong.py",
        "from streamkit import Entity\n\n\nclass Order(Entity, pk='ORDER#{nmber}'):\n    number: int\n",
    )
    done = shop.run("check", "wrong")
    assert done.returncode == 3
    assert "wrong.py:4" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x = 1\n", "m", "m has no App; create one in m, as in app = App("),
        (
            "from streamkit import App\na = App('a', table='t')\nb = App('b', table='t')\n",
            "m",
            "m:a or m:b",
        ),
        (
            "from streamkit import App\na = App('a', table='t')\nx = 1\n",
            "m:x",
            "an int, not an App; use m:a",
        ),
        (
            "from streamkit import App\na = App('a', table='t')\n",
            "m:App",
            "m:App names the class App, not an App; use m:a",
        ),
        ("x = 1\n", "m.py", "did you mean m?"),
    ],
)
def test_what_is_not_an_app_is_answered_with_what_is(shop, text, name, said):
    write(shop, "m.py", text)
    done = shop.run("check", name)
    assert done.returncode == 3
    assert said in done.stderr


def test_an_app_with_two_names_and_a_listener_in_its_module_is_one_app(shop):
    write(shop, "twice.py", "from shop import app\n\nsame = app\nsearch = app.listener('search')\n")
    done = shop.run("check", "twice")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_app_in_a_module_of_the_package_that_was_named_is_offered(shop):
    (shop.folder / "store").mkdir()
    write(shop, "store/__init__.py", "")
    write(shop, "store/main.py", "from streamkit import App\n\napp: App = App('a', table='t')\n")
    for name in ("store", "store:app"):
        done = shop.run("check", name)
        assert done.returncode == 3
        assert "use store.main:app" in done.stderr


def test_the_app_may_come_from_the_environment(shop):
    assert shop.run("check", STREAMKIT_APP="shop:app").returncode == 0
    none = shop.run("check")
    assert none.returncode == 2
    assert "STREAMKIT_APP" in none.stderr


def test_check_tells_what_a_worker_would_find(shop):
    found = shop.json("check", "shop")
    assert found["ok"]
    assert found["table"]["stream_view"] == "NEW_AND_OLD_IMAGES"
    assert found["table"]["keys"] == {"pk": "S", "sk": "S"}
    assert [(h["name"], h["entity"]) for h in found["handlers"]] == [
        ("PerStatus", "Order"),
        ("journal", "Order"),
    ]
    assert all(permission["allowed"] for permission in found["permissions"])
    assert len(found["permissions"]) == 8


def test_check_changes_nothing_in_the_table(shop):
    shop.run("check", "shop")
    assert shop.dynamodb.scan(TableName=shop.table)["Items"] == []


@pytest.mark.parametrize(
    ("options", "said"), [({"stream": False}, "no stream"), ({"key_type": "N"}, "control_table")]
)
def test_check_exits_with_5_when_a_worker_could_not_start(bare_shop, options, said):
    bare_shop.create(**options)
    done = bare_shop.run("check", "shop")
    assert done.returncode == 5
    assert said in done.stdout
    assert bare_shop.run("worker", "shop", "--until-idle").returncode == 4


def test_a_table_that_is_not_there_exits_with_4_for_every_command(bare_shop):
    for command in (["check"], ["status"], ["worker", "--until-idle"], ["parked", "list"]):
        done = bare_shop.run(*command, "shop")
        assert done.returncode == 4
        assert f"no table '{bare_shop.table}'" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_endpoint_that_nobody_listens_on_exits_with_4(shop):
    done = shop.run("status", "shop", AWS_ENDPOINT_URL_DYNAMODB="http://127.0.0.1:9")
    assert done.returncode == 4
    assert "127.0.0.1:9" in done.stderr
    assert "`streamkit local` must be running" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_CA_BUNDLE": "/nowhere.pem"}, "check the file that AWS_CA_BUNDLE names"),
        ({"AWS_CA_BUNDLE": "shop.py"}, "check the file that AWS_CA_BUNDLE names"),
        ({"AWS_ENDPOINT_URL_DYNAMODB": "nonsense"}, "Invalid endpoint: nonsense: correct the"),
        ({"AWS_REGION": "eu central"}, "correct AWS_REGION, such as eu-central-1"),
        ({"AWS_SECRET_ACCESS_KEY": None}, "export AWS_PROFILE, or AWS_ACCESS_KEY_ID and"),
        ({"AWS_REGION": "eu-west-3"}, "in this account and Region (eu-west-3); check the name"),
    ],
)
def test_a_setting_of_aws_that_is_wrong_ends_at_once_with_what_to_correct(shop, variables, said):
    if "AWS_CA_BUNDLE" in variables:
        variables["AWS_ENDPOINT_URL_DYNAMODB"] = "https://127.0.0.1:9"
    for command in (["status"], ["worker", "--until-idle"]):
        done = shop.run(*command, "shop", **variables)
        assert done.returncode == 4, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_server_that_is_not_dynamodb_is_told_from_one_that_is(shop):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = shop.run("status", "shop", AWS_ENDPOINT_URL_DYNAMODB=url)
        server.shutdown()
    assert done.returncode == 4
    assert f"what answers at {url} is not DynamoDB (status 501)" in done.stderr


def test_without_a_region_it_says_so(shop):
    done = shop.run("status", "shop", AWS_REGION=None, AWS_DEFAULT_REGION=None)
    assert done.returncode == 4
    assert "export AWS_REGION" in done.stderr


def test_a_profile_that_is_not_there_is_named_with_its_variable(shop):
    done = shop.run("status", "shop", AWS_PROFILE="nobody")
    assert done.returncode == 4
    assert "(nobody) could not be found" in done.stderr
    assert "check AWS_PROFILE" in done.stderr


def test_what_is_not_python_is_shown_with_its_line_alone(shop):
    write(shop, "half.py", "def f(:\n")
    done = shop.run("check", "half")
    assert done.returncode == 3
    assert "half is not valid Python" in done.stderr
    assert "def f(:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_value_shows_the_line_that_gave_it_and_none_of_ours(shop):
    write(shop, "refused.py", "from shop import Order\n\nkey = Order.key(nmber=1)\n")
    done = shop.run("check", "refused")
    assert done.returncode == 3
    assert "refused.py" in done.stderr
    assert "needs number and does not take nmber" in done.stderr
    assert "entity.py" not in done.stderr


def test_a_lifespan_that_raises_is_shown_without_the_command_lines_frames(shop):
    lifespan = "from shop import app\n\n\n@app.lifespan\nasync def life():\n    raise OSError('no database')\n    yield\n"
    write(shop, "homeless.py", lifespan)
    done = shop.run("worker", "homeless:app", "--until-idle")
    assert done.returncode == 1
    assert "the app, or what it calls, raised" in done.stderr
    assert "OSError: no database" in done.stderr
    assert "in life" in done.stderr
    assert "typer" not in done.stderr
    assert "asyncio" not in done.stderr


def test_a_setting_that_makes_no_sense_is_a_usage_error(shop):
    for wrong in (["--lease", "-1"], ["--lease", "long"], ["--log-format", "xml"], ["--nonsense"]):
        done = shop.run("worker", "shop", *wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.streamkit", "pyproject.toml is not TOML"),
        ("[tool.streamkit]\nlees = 3", "lees: no such"),
    ],
    ids=["half", "misspelled"],
)
def test_a_file_of_settings_that_cannot_be_read_is_a_usage_error(shop, text, said):
    write(shop, "pyproject.toml", text)
    done = shop.run("worker", "shop")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_the_environment_variable_of_every_setting(shop):
    text = " ".join(shop.run("worker", "--help").stdout.split())
    for name in (
        "HEARTBEAT",
        "LEASE",
        "POLL_FLOOR",
        "CHECKPOINT_INTERVAL",
        "GRACE",
        "LOG_LEVEL",
        "APP",
    ):
        assert f"STREAMKIT_{name}" in text
    codes = shop.run("--help").stdout
    assert all(f"{code}  " in codes for code in (0, 1, 2, 3, 4, 5, 6, 70, 130))


def test_the_version_is_printed(shop):
    done = shop.run("--version")
    assert (done.returncode, done.stdout) == (0, "streamkit 0.1.0\n")


def test_a_demo_that_is_not_here_says_where_it_was_looked_for(shop):
    done = shop.run("demo", "nothing")
    assert done.returncode == 3
    assert "handlers" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_is_played_with_what_was_given_and_decides_the_exit_code(shop):
    folder = shop.folder / "handlers" / "mine"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "demo.py").write_text(
        "def main(*, writes=5, seed=1):\n    print(writes, seed)\n    return 1\n"
    )
    done = shop.run_apart("demo", "mine", "--writes", "7")
    assert (done.returncode, done.stdout) == (1, "7 1\n")


def test_a_port_that_is_taken_is_a_usage_error(shop):
    port = shop.url.rpartition(":")[2]
    done = shop.run("local", "--port", port)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr


def test_json_is_all_that_stdout_holds(shop):
    shop.put(1, "A")
    shop.run("worker", "shop", "--until-idle")
    for command in (["status"], ["check"], ["parked", "list"]):
        json.loads(shop.run(*command, "shop", "--json").stdout)


def test_a_command_before_head_ends_without_a_word(shop):
    """Its output is closed before the command has printed a line."""
    command = [sys.executable, "-m", "streamkit", "describe", "shop"]
    for more in ([], ["--json"], ["--mermaid"]):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [*command, *more],
                cwd=shop.folder,
                env=shop.env,
                stdout=writer,
                stderr=subprocess.PIPE,
                check=False,
            )
        finally:
            os.close(writer)
        assert (done.returncode, done.stderr) == (141, b"")


def test_the_console_script_is_the_same_program(shop):
    script = Path(sys.executable).with_name("streamkit")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == "streamkit 0.1.0\n"
