"""Processes of both versions: they share a fleet, and their commands say the same.

A process finds the released version first on its path. Nothing else is different for it.
"""

import json
import os
import subprocess
import sys

from streamkit.testing.harness import table_of
from tests.integration.processes import ROOT, Writer, finish, running
from tests.upgrade.stand import app
from tests.upgrade.versions import unpacked

NEVER = {"heartbeat": 0.3, "lease": 3600, "look_interval": 0.2, "list_interval": 1.0}
"""With leases that never end, only what is given back is taken."""


def test_workers_of_both_versions_share_one_fleet_and_each_may_be_the_last(tmp_path):
    with running(tmp_path, shards=4, **NEVER) as site:
        old = {"folder": unpacked()}
        writer = Writer(site.client, seed=2)
        writer.write(30)
        first, second = site.start(**old), site.start()
        site.until_owned_by([first, second])
        writer.write(30)
        assert first.stop() == 0
        site.until_owned_by([second])
        site.control("roll")
        writer.write(30)
        third = site.start(**old)
        site.until_owned_by([second, third])
        assert second.stop() == 0
        site.until_owned_by([third])
        writer.write(30)
        finish(site, writer)
        (consumer,) = site.controls("fingerprint")
        assert (consumer["generation"], len(consumer["known"])) == (1, 1)


def asked(folder, environment, *commands):
    """Let a process that finds `streamkit` in a folder run commands; return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.upgrade.asked"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        input=json.dumps([command.split() for command in commands]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["package"] == str(folder / "streamkit")
    return answer


def test_apps_that_did_not_change_have_the_same_fingerprints():
    before, now = (asked(folder, dict(os.environ))["fingerprints"] for folder in (unpacked(), ROOT))
    assert len(before) > 15  # the pages have examples that the released version cannot build
    assert before == {name: told for name, told in now.items() if name in before}


APP = "tests.upgrade.stand:app"
BEGUN = (f"worker {APP} --until-idle", f"migrate apply {APP} 0001")
QUESTIONS = f"""
    aggregate list {APP} --json
    aggregate verify {APP} Things --patience 0 --looks 1 --json
    check {APP}
    check nowhere:app
    check
    consumers list Things --json
    cost {APP} --json
    explain {APP} THINGS THING#poison --json
    explain {APP} THINGS THING#poison --records --json
    fan-outs list {APP} --json
    iam {APP}
    lambda filter {APP}
    migrate check {APP} --json
    migrate errors list {APP} 0001 --json
    migrate history {APP} 0001 --json
    migrate plan {APP} 0001 --json
    migrate status {APP} --json
    migrate status {APP} 0001 --json
    migrate status {APP} 0002 --json
    migrate verify {APP} 0001 --json
    parked list {APP} --json
    parked list {APP} --exit-code
    status {APP} --json
    status {APP} --exit-code
    status tests.upgrade.nothing --json
"""
CODES = {0, 2, 3, 4, 5}
"""What the questions are answered with, among them."""


RENAMED = {"lane": "queue", "held_lanes": "parked_queues", "stuck_lanes": "stuck_queues"}
"""Fields of the released version that have another name now, as `CHANGELOG.md` says."""


def fields_of(found, path=""):
    """Return where there is something in what was printed as JSON."""
    if isinstance(found, dict):
        return {path}.union(*(fields_of(value, f"{path}.{name}") for name, value in found.items()))
    if isinstance(found, list):
        return {path}.union(*(fields_of(value, f"{path}[]") for value in found))
    return {path}


def test_commands_of_both_versions_exit_and_answer_alike(tmp_path):
    with running(tmp_path) as site:
        site.client.create_table(**things_table())
        for name in ("poison", "a", "b"):
            site.client.put_item(TableName="Things", Item=thing(name))
        site.environment |= {"STREAMKIT_LEASE": "1", "STREAMKIT_HEARTBEAT": "0.3"}
        asked(unpacked(), site.environment, *BEGUN)
        questions = QUESTIONS.strip().splitlines()
        folders = (unpacked(), ROOT)
        before, now = (asked(f, site.environment, *questions)["said"] for f in folders)
    assert {code for code, _ in now} >= CODES
    for question, (code, text), (code_now, text_now) in zip(questions, before, now, strict=True):
        assert code_now == code, question
        if "--json" in question and text:
            said, fields_now = fields_of(json.loads(text)), fields_of(json.loads(text_now))
            fields = {".".join(RENAMED.get(n, n) for n in path.split(".")) for path in said}
            assert len(fields) > 1, question
            assert fields - fields_now == set(), question


def things_table():
    return table_of(app)


def thing(name):
    key = {"PK": {"S": "THINGS"}, "SK": {"S": f"THING#{name}"}}
    return key | {"name": {"S": name}, "n": {"N": "1"}}
