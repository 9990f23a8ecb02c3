"""What a failed write means is said in one place, for a single item and for a transaction."""

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from streamkit.progress.verdicts import Again, Invalid, RefusedCommit, judge

CONDITION, CONFLICT = "ConditionalCheckFailed", "TransactionConflict"
THERE = {"PK": {"S": "ORDER#1"}}


def error(code, **response):
    return ClientError({"Error": {"Code": code}, **response}, "TransactWriteItems")


def canceled(*codes, **item):
    reasons = [{"Code": code, **(item if code == CONDITION else {})} for code in codes]
    return error("TransactionCanceledException", CancellationReasons=reasons)


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (error("ConditionalCheckFailedException", Item=THERE), RefusedCommit(items={0: THERE})),
        (error("ConditionalCheckFailedException"), RefusedCommit(items={0: None})),
        (canceled("None", CONDITION, Item=THERE), RefusedCommit(items={1: THERE})),
        (canceled(CONDITION, CONFLICT, CONDITION), RefusedCommit(items={0: None, 2: None})),
        (canceled("None", "ValidationError"), Invalid((1,), "ValidationError")),
        (canceled("ItemCollectionSizeLimitExceeded"), Invalid((0,), "ValidationError")),
        (error("ValidationException"), Invalid((), "ValidationException")),
        (canceled("None", CONFLICT), Again(throttled=False)),
        (canceled(CONFLICT, "ThrottlingError"), Again(throttled=True)),
        (canceled(), Again(throttled=False)),
        (error("TransactionConflictException"), Again(throttled=False)),
        (error("ThrottlingException"), Again(throttled=True)),
        (ReadTimeoutError(endpoint_url="here"), Again(throttled=False)),
        (error("AccessDeniedException"), None),
        (error("ResourceNotFoundException"), None),
    ],
)
def test_each_failure_of_a_write_has_one_meaning(failure, verdict):
    assert judge(failure) == verdict


def test_people_are_told_which_item_of_a_transaction_is_invalid_if_the_service_said():
    assert Invalid((), "ValidationException").text == "DynamoDB finds the request invalid"
    told = "DynamoDB finds item 3 of a transaction invalid"
    assert Invalid((3,), "ValidationError").text == told
