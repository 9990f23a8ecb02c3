"""A transaction without a cursor is sent until its fate is known, and what is refused says why."""

import random
from types import SimpleNamespace

import anyio
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from streamkit.effects import Guard
from streamkit.errors import ConfigurationError
from streamkit.model.conditions import absent
from streamkit.observe.repeats import counted_as
from streamkit.progress.actions import Action, GuardSource, ItemRef, Verb
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid, RefusedCommit
from streamkit.testing.loop import run_virtually
from tests.pending import SCHEMA

SOURCE = GuardSource("1", "h", 0)


def put(name):
    action = Action(
        ItemRef("things", ("S", name), ("S", name)),
        Verb.PUT,
        item={"pk": {"S": name}, "sk": {"S": name}},
    )
    action.guards.append((Guard(absent), SOURCE))
    return action


def refused(code, *reasons):
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    if reasons:
        response["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(response, "TransactWriteItems")


def canceled(*reasons):
    return refused("TransactionCanceledException", *reasons)


class Table:
    """Gives each transaction the next answer, the last one again and again."""

    def __init__(self, *answers):
        self.answers, self.tokens = list(answers), []

    async def transact_write_items(self, **request):
        self.tokens.append(request["ClientRequestToken"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


def sent(table, *actions, meters=None):
    """Send actions; return the verdict, and how many seconds it took."""

    async def main():
        send = transact(table, {"things": SCHEMA}, actions or (put("a"),), random.Random(1))
        if meters is None:
            return await send, anyio.current_time()
        with counted_as(meters):
            return await send, anyio.current_time()

    return run_virtually(main)


TIMEOUT = ReadTimeoutError(endpoint_url="https://dynamodb")


@pytest.mark.parametrize(
    "trouble",
    [
        TIMEOUT,
        refused("ThrottlingException"),
        canceled("None", "ThrottlingError"),
        canceled("TransactionConflict"),
        refused("InternalServerError"),
    ],
    ids=str,
)
def test_what_passes_is_sent_again_with_the_same_token_and_growing_pauses(trouble):
    table = Table(trouble, trouble, trouble, None)
    verdict, seconds = sent(table)
    assert verdict is None
    assert len(table.tokens) == 4
    assert len({*table.tokens}) == 1
    assert 0.1 < seconds < 1.0


def test_two_transactions_have_two_tokens():
    table = Table(None)
    sent(table)
    sent(table)
    assert len({*table.tokens}) == 2


def test_what_does_not_pass_within_half_a_minute_is_the_callers_error():
    table = Table(refused("ThrottlingException"))
    with pytest.raises(ClientError, match="Throttling"):
        sent(table)
    assert len(table.tokens) == 12


def test_a_condition_that_does_not_hold_names_its_effect_and_an_invalid_action_its_place():
    condition = canceled("None", "ConditionalCheckFailed")
    assert sent(Table(condition), Action(put("b").ref, Verb.DELETE), put("a"))[0] == RefusedCommit(
        (SOURCE,)
    )
    invalid = sent(Table(canceled("None", "ValidationError")))[0]
    assert invalid == Invalid((1,), "ValidationError")


def test_where_every_condition_holds_by_now_the_transaction_is_sent_again(monkeypatch):
    """Several conditions on one item are looked at after the refusal, each alone."""
    looked = []

    async def blamed(dynamodb, schemas, actions):
        looked.append([action.ref.pk[1] for action in actions])
        return ()

    monkeypatch.setattr("streamkit.progress.transaction.blamed", blamed)
    table = Table(canceled("None", "ConditionalCheckFailed"), None)
    assert sent(table, put("a"), put("b"))[0] is None
    assert (looked, len(table.tokens)) == ([["b"]], 2)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("AccessDeniedException", "AccessDeniedException; check the credentials' permission"),
        ("ResourceNotFoundException", "ResourceNotFoundException; check"),
        ("InvalidSignatureException", "InvalidSignatureException$"),
    ],
)
def test_what_aws_refuses_for_good_is_a_mistake_of_the_configuration(code, told):
    table = Table(refused(code))
    with pytest.raises(ConfigurationError, match=told):
        sent(table)
    assert len(table.tokens) == 1


@pytest.mark.parametrize(
    ("trouble", "conflicts"),
    [
        (canceled("TransactionConflict"), 1),
        (refused("TransactionConflictException"), 1),
        (canceled("None", "ThrottlingError"), 0),  # counted call by call elsewhere
        (refused("ThrottlingException"), 0),
        (TIMEOUT, 0),
    ],
    ids=str,
)
def test_conflicts_are_counted_and_neither_throttling_nor_what_has_no_answer(trouble, conflicts):
    counted = []
    counter = SimpleNamespace(add=lambda *_: counted.append(1))
    meters = SimpleNamespace(conflicts=counter, consumer="shop")
    assert sent(Table(trouble, None), meters=meters)[0] is None
    assert len(counted) == conflicts
