"""What the engine lacks: every operation of DynamoDB is there, or is named as missing."""

from pathlib import Path

import botocore.session
import pytest

from streamkit.local.engine import OPERATIONS
from streamkit.local.lacking import LACKING

LACKED = [name for lack in LACKING for name in lack.operations]


def operations(service):
    return set(botocore.session.get_session().get_service_model(service).operation_names)


def test_every_operation_is_there_or_named_as_missing():
    there = {name for service, name in OPERATIONS if service == "dynamodb"}
    assert there | set(LACKED) == operations("dynamodb")
    assert not there & set(LACKED)
    assert len(LACKED) == len(set(LACKED))
    assert {name for service, name in OPERATIONS if service == "dynamodbstreams"} == operations(
        "dynamodbstreams"
    )


@pytest.mark.parametrize("operation", LACKED)
def test_a_missing_operation_says_so_and_what_to_do(db, operation):
    code, message = db.refused(operation)
    assert code == "UnknownOperationException"
    assert message.startswith(f"{operation}: streamkit's local engine has no ")
    assert "; instead, " in message


def test_an_operation_that_nobody_has_is_unknown(db):
    assert db.refused("Explode") == (
        "UnknownOperationException",
        "Explode is no operation that streamkit's local engine knows",
    )


def test_the_page_lists_what_is_missing():
    page = (Path(__file__).parents[3] / "docs/testing.md").read_text()
    for lack in LACKING:
        names = ", ".join(f"`{name}`" for name in lack.operations)
        assert f"| {lack.title} | {names} | {lack.instead} |" in page
