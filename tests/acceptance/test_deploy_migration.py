"""`deploy/lambda/migration.yaml`: its state machine, deployed into moto and executed there."""

import json
import time
from dataclasses import fields, replace

import boto3
import pytest
from moto import mock_aws
from moto.awslambda_simple.models import LambdaSimpleBackend

from streamkit.migrate.operate.slices import Slice
from tests.acceptance.deployment import template

REGION = "us-east-1"
PAUSES = {"Again": 30, "Paused": 300, "Watching": 900}
"""How long an execution waits until it asks again; here it does not."""
BUSY = Slice("0003", "scanning", False, False, False, 5, 0)
IDLE = replace(BUSY, segments_left=0)
PAUSED = replace(BUSY, paused=True)
DONE = replace(BUSY, phase="done", done=True, segments_left=0)
WATCHING = replace(IDLE, phase="closing", waits=True)
READY = replace(DONE, phase="ready")
BLOCKED = replace(DONE, phase="blocked", blocked=True, errors=2)
DEADLINE = 60.0


class Function:
    """Answers each invocation with what comes next, and the last again."""

    def __init__(self, *answers):
        self.answers, self.events = list(answers), []

    def invoke(self, body, reply_headers):
        self.events.append(json.loads(body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            reply_headers["x-amz-function-error"] = "Unhandled"
            return json.dumps({"errorType": answer, "errorMessage": "it is wrong"}).encode()
        return json.dumps(answer.to_dict()).encode()


@pytest.fixture
def definition():
    """The state machine as it is deployed, with the name of its function."""
    machine = template("lambda/migration.yaml")["Resources"]["Migration"]["Properties"]
    assert machine["DefinitionSubstitutions"] == {"Slice": {"Fn::GetAtt": ["Slice", "Arn"]}}
    text = json.dumps(machine["Definition"])
    return json.loads(text.replace("${Slice}", "slice"))


def states_of(definition):
    return definition["States"]["Slices"]["ItemProcessor"]["States"]


def hurried(states):
    """The states without their pauses."""
    for name in PAUSES:
        states[name]["Seconds"] = 0
    for rule in states["Slice"]["Retry"]:
        if rule["MaxAttempts"]:
            rule |= {"IntervalSeconds": 1, "MaxDelaySeconds": 2, "JitterStrategy": "FULL"}
    return states


@pytest.fixture
def execute(monkeypatch):
    """Execute a machine on some answers; returns how it ended, and the events that were sent."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    function = Function()
    monkeypatch.setattr(
        LambdaSimpleBackend, "invoke", lambda *words: function.invoke(words[3], words[5])
    )

    def run(machine, given, *answers):
        function.answers = list(answers)
        made = client.create_state_machine(
            name="migration", definition=json.dumps(machine), roleArn=role["Arn"]
        )
        started = client.start_execution(
            stateMachineArn=made["stateMachineArn"], input=json.dumps(given)
        )
        end = time.monotonic() + DEADLINE
        arn = started["executionArn"]
        while (found := client.describe_execution(executionArn=arn))["status"] == "RUNNING":
            assert time.monotonic() < end
            time.sleep(0.01)  # moto runs it in a thread
        return found, function.events

    with mock_aws(
        config={"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}
    ):
        client = boto3.client("stepfunctions", REGION)
        made = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")
        role = made["Role"]
        yield run


@pytest.fixture
def slices(execute, definition):
    """Execute what runs for one number, which is an execution of its own."""
    one = definition["States"]["Slices"]["ItemProcessor"]
    machine = {"StartAt": one["StartAt"], "States": hurried(one["States"])}
    return lambda *answers: execute(
        machine, {"event": {"migration": "0003"}, "number": 1}, *answers
    )


@pytest.mark.parametrize(("said", "wanted"), [({}, 4), ({"parallel": 2}, 2)])
def test_an_execution_runs_four_places_unless_it_is_told_and_each_gets_the_whole_event(
    execute, definition, said, wanted
):
    given = {"migration": "0003", "max_wcu": 100, **said}
    found, events = execute(definition, given, DONE)
    assert found["status"] == "SUCCEEDED"
    assert events == [given | {"parallel": wanted}] * wanted


def test_a_slice_is_followed_by_another_one_until_the_migration_is_done(slices):
    found, events = slices(BUSY, IDLE, DONE)
    assert (found["status"], len(events)) == ("SUCCEEDED", 3)


def test_a_migration_that_waits_for_its_switch_is_done(slices):
    found, events = slices(READY)
    assert (found["status"], len(events)) == ("SUCCEEDED", 1)


def test_a_blocked_migration_fails_so_that_the_alarm_goes_off(slices):
    found, events = slices(BUSY, BLOCKED)
    assert (found["status"], found["error"], len(events)) == ("FAILED", "Blocked", 2)


def test_a_paused_migration_is_asked_after_until_it_goes_on(slices):
    found, events = slices(PAUSED, PAUSED, DONE)
    assert (found["status"], len(events)) == ("SUCCEEDED", 3)


def test_a_migration_whose_stubs_are_watched_is_asked_after_seldom_for_a_day(slices, definition):
    choices = states_of(definition)["Done"]["Choices"]
    (watching,) = [one["Next"] for one in choices if one["Variable"] == "$.slice.waits"]
    assert watching == "Watching"
    found, events = slices(BUSY, WATCHING, WATCHING, DONE)
    assert (found["status"], len(events)) == ("SUCCEEDED", 4)


@pytest.mark.parametrize("error", ["ConfigurationError", "DiscoveryError"])
def test_what_only_people_can_mend_is_not_tried_again(slices, error):
    found, events = slices(error)
    assert (found["status"], found["error"], len(events)) == ("FAILED", error, 1)


@pytest.mark.parametrize("error", ["ClientError", "Lambda.ServiceException", "Sandbox.Timedout"])
def test_what_passes_is_tried_again(slices, error):
    found, events = slices(error, DONE)
    assert (found["status"], len(events)) == ("SUCCEEDED", 2)


def test_what_is_asked_of_a_slice_is_what_it_answers_and_pauses_fit_into_an_execution(definition):
    states = states_of(definition)
    selected = states["Slice"]["ResultSelector"]
    answered = {path.removeprefix("$.Payload.") for path in selected.values()}
    assert answered <= {field.name for field in fields(Slice)}
    asked = {choice["Variable"].removeprefix("$.slice.") for choice in states["Done"]["Choices"]}
    assert asked == {name.removesuffix(".$") for name in selected}
    assert {name: states[name]["Seconds"] for name in PAUSES} == PAUSES
    # Entered and left, scheduled, started, done: of the three states of one round.
    events_a_round = 2 * 3 + 4
    assert PAUSES["Paused"] * 25_000 / events_a_round > 7 * 86_400
