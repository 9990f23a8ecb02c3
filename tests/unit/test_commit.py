"""What the committer makes of each answer that a transaction can get."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)
from structlog.testing import capture_logs

from streamkit.aws import tell_repeated
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.model.conditions import absent, present
from streamkit.model.schema import TableSchema
from streamkit.observe.meters import Meters
from streamkit.observe.registry import Registry
from streamkit.progress.actions import Action, GuardSource, ItemRef, Verb
from streamkit.progress.commit import Applied, Batch, Committer
from streamkit.progress.control import ControlSpace, Cursor, cursor_attributes
from streamkit.progress.probing import failing
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit

SCHEMA = TableSchema("t", "pk", "sk", "S", "S", {})
MINE = Cursor("shard-1", owner="me", epoch=3, generation=2, position="5".zfill(40), commit="c0")
SOURCE = GuardSource("7", "handler", 0)


def canceled(*codes, item=None):
    reasons = [{"Code": code} for code in codes]
    if item is not None:
        reasons[0]["Item"] = item
    response = {
        "Error": {"Code": "TransactionCanceledException", "Message": ""},
        "CancellationReasons": reasons,
    }
    return ClientError(response, "TransactWriteItems")


def failure(code, status=400):
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "TransactWriteItems")


class Table:
    """Answers transactions with a script; `None` means success."""

    def __init__(self, *script, item=None):
        self.script = list(script)
        self.requests = []
        self.item = item

    async def get_item(self, **request):
        assert request["ConsistentRead"]
        return {} if self.item is None else {"Item": self.item}

    async def transact_write_items(self, **request):
        self.requests.append(request)
        answer = self.script.pop(0)
        if callable(answer):
            answer = answer(self)
        if answer is not None:
            raise answer


def committer(table, *more):
    space = ControlSpace.of(SCHEMA, "app", "label")
    return Committer(table, space, MINE, {"t": SCHEMA}, random.Random(0), *more)


def batch(position="9", *, guarded=False):
    action = Action(ItemRef("t", ("S", "x"), ("S", "x")), Verb.UPDATE, sets={"a": {"S": "b"}})
    if guarded:
        action.guards.append((Guard(absent), SOURCE))
    return Batch(replace(MINE, position=position.zfill(40)), [action], changes=1)


def in_table(**changes):
    attributes = cursor_attributes(replace(MINE, **changes))
    return {f"_sk_{name}": value for name, value in attributes.items()}


async def test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit():
    table = Table(None)
    subject = committer(table)
    sent = batch()
    assert await subject.commit(sent) == Applied(sent)
    first = table.requests[0]["TransactItems"][0]["Update"]
    names, values = first["ExpressionAttributeNames"], first["ExpressionAttributeValues"]
    wanted = {
        "owner": "me",
        "epoch": "3",
        "generation": "2",
        "position": MINE.position,
        "commit": "c0",
    }
    for name, text in wanted.items():
        assert f"_sk_{name}" in names.values()
        assert text in [next(iter(v.values())) for v in values.values()]
    assert first["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert subject.cursor.position == sent.cursor.position
    assert subject.cursor.commit == sent.id


@pytest.mark.parametrize("change", [{"owner": "other"}, {"epoch": 4}, {"generation": 3}])
async def test_another_owner_epoch_or_generation_is_a_lost_lease(change):
    table = Table(canceled("ConditionalCheckFailed", "None", item=in_table(**change)))
    with pytest.raises(LeaseLost):
        await committer(table).commit(batch())


async def test_a_cursor_that_is_gone_is_a_lost_lease():
    with pytest.raises(LeaseLost):
        await committer(Table(canceled("ConditionalCheckFailed", "None"))).commit(batch())


async def test_an_unknown_commit_under_my_own_lease_drops_the_lease():
    item = in_table(commit="somebody", position="9".zfill(40))
    with pytest.raises(LeaseLost):
        await committer(Table(canceled("ConditionalCheckFailed", "None", item=item))).commit(
            batch()
        )


async def test_after_a_time_out_the_same_plan_is_sent_again_under_the_same_token():
    table = Table(ReadTimeoutError(endpoint_url="x"), None)
    sent = batch()
    assert await committer(table).commit(sent) == Applied(sent)
    assert [r["ClientRequestToken"] for r in table.requests] == [sent.id, sent.id]
    assert table.requests[0]["TransactItems"] == table.requests[1]["TransactItems"]


async def test_a_plan_that_won_late_is_adopted_instead_of_the_newer_one():
    first, second = batch("9", guarded=True), batch("9")
    late = in_table(commit=first.id, position=first.cursor.position)
    table = Table(
        ReadTimeoutError(endpoint_url="x"),  # the first may have been applied, or may be later
        canceled("None", "ConditionalCheckFailed"),
        canceled("ConditionalCheckFailed", "None", item=late),
    )
    subject = committer(table)
    assert await subject.commit(first) == RefusedCommit((SOURCE,))
    assert await subject.commit(second) == Applied(first)
    assert subject.cursor.commit == first.id


async def test_a_refused_condition_names_its_effects():
    table = Table(canceled("None", "ConditionalCheckFailed"))
    assert await committer(table).commit(batch(guarded=True)) == RefusedCommit((SOURCE,))


async def test_a_refusal_of_which_no_condition_is_left_is_another_try_after_a_pause():
    sent = batch(guarded=True)
    sent.actions[0].guards.append((Guard(present), SOURCE))
    table = Table(canceled("None", "ConditionalCheckFailed"), None, None)
    assert await committer(table).commit(sent) == Again(throttled=False)


async def test_an_invalid_action_is_named_whatever_else_went_wrong():
    table = Table(canceled("None", "ValidationError"), item=in_table())
    assert await committer(table).commit(batch()) == Invalid((0,), "ValidationError")


async def test_an_invalid_request_is_invalid_as_a_whole():
    table = Table(failure("ValidationException"), item=in_table())
    assert await committer(table).commit(batch()) == Invalid((), "ValidationException")


INVALID = {
    "of an action": lambda: canceled("None", "ValidationError"),
    "of all": lambda: failure("ValidationException"),
}


@pytest.mark.parametrize("invalid", INVALID)
@pytest.mark.parametrize(
    "change",
    [{"owner": "other"}, {"epoch": 4}, {"generation": 3}, {"commit": "x"}, {"position": "6"}, None],
)
async def test_an_invalid_action_does_not_hide_a_lost_lease(invalid, change):
    """DynamoDB stops at it, and then says nothing of the cursor."""
    item = None if change is None else in_table(**change)
    with pytest.raises(LeaseLost):
        await committer(Table(INVALID[invalid](), item=item)).commit(batch())


@pytest.mark.parametrize("invalid", INVALID)
async def test_an_invalid_action_does_not_hide_a_plan_that_won_late(invalid):
    """Its own effects may be what makes the newer plan invalid: no result is to blame."""
    first, second = batch("9", guarded=True), batch("9")
    late = in_table(commit=first.id, position=first.cursor.position)
    table = Table(
        ReadTimeoutError(endpoint_url="x"),
        canceled("None", "ConditionalCheckFailed"),
        INVALID[invalid](),
        item=late,
    )
    subject = committer(table)
    assert await subject.commit(first) == RefusedCommit((SOURCE,))
    assert await subject.commit(second) == Applied(first)


async def test_a_condition_that_cannot_be_asked_is_asked_once():
    action = batch(guarded=True).actions[0]
    action.guards.append((Guard(present), SOURCE))
    table = Table(canceled("ValidationError"), None)
    assert await failing(table, SCHEMA, action) == [SOURCE]
    assert not table.script


@pytest.mark.parametrize(
    ("codes", "throttled"),
    [
        (("TransactionConflict", "None"), False),
        (("None", "TransactionConflict"), False),
        (("None", "ThrottlingError"), True),
        (("ProvisionedThroughputExceeded", "None"), True),
    ],
)
async def test_conflicts_and_throttling_are_never_a_lost_lease(codes, throttled):
    assert await committer(Table(canceled(*codes))).commit(batch()) == Again(throttled=throttled)


async def test_a_commit_that_is_throttled_is_told_with_its_code_and_a_conflict_is_not():
    slow = ("None", "ProvisionedThroughputExceeded")
    with capture_logs() as logs:
        for error in (
            canceled(*slow),
            failure("ThrottlingException"),
            canceled("TransactionConflict"),
        ):
            await committer(Table(error)).commit(batch())
    assert [(one["event"], one["code"]) for one in logs] == [
        ("aws.repeated", "ProvisionedThroughputExceeded"),
        ("aws.repeated", "ThrottlingException"),
    ]


@pytest.mark.parametrize(
    ("error", "called"),
    [
        (failure("ThrottlingException"), "TransactWriteItems"),
        (EndpointConnectionError(endpoint_url="https://s3.example/bucket/secret"), "s3.example"),
        (ReadTimeoutError(endpoint_url="https://dynamodb.example:443/"), "dynamodb.example"),
        (HTTPClientError(error="odd"), ""),
    ],
)
async def test_a_repeated_call_is_told_with_its_operation_or_with_the_host_that_is_silent(
    error, called
):
    with capture_logs() as logs:
        tell_repeated(error)
    assert [(one["event"], one["called"]) for one in logs] == [("aws.repeated", called)]
    assert "secret" not in str(logs)


async def test_missing_permissions_say_what_to_check():
    with pytest.raises(ConfigurationError, match="permission"):
        await committer(Table(failure("AccessDeniedException"))).commit(batch())


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (None, "commits"),
        (failure("TransactionConflictException"), "commit_conflicts"),
        (failure("ThrottlingException"), None),
        (canceled("ConditionalCheckFailed", "None", item=in_table(owner="another")), "fenced"),
    ],
    ids=["applied", "conflict", "throttled", "fenced"],
)
async def test_each_fate_of_a_commit_is_counted_by_itself(answer, counted):
    registry = Registry()
    subject = committer(Table(answer), Meters(registry, "shop"))
    with suppress(LeaseLost):
        await subject.commit(batch())
    names = ("commits", "commit_conflicts", "fenced")
    found = {name: registry.total(f"streamkit_{name}_total") for name in names}
    assert found == {name: float(name == counted) for name in names}
