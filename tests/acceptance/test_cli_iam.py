"""`streamkit iam` prints policies that IAM takes."""

import json

import pytest

ACCOUNT = "123456789012"
ARN = f"arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/Orders"


def policy(shop, *options):
    done = shop.run("iam", "shop", *options, AWS_ENDPOINT_URL_DYNAMODB="http://localhost:1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("host", ["worker", "lambda", "migrate", "operator"])
def test_each_host_has_a_policy_for_the_table_it_is_told_and_nothing_else(shop, host):
    found, notes = policy(shop, "--host", host, "--table-arn", ARN)
    assert found["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in found["Statement"]]
    assert len(sids) == len(set(sids))
    assert all(sid.isalnum() for sid in sids)
    resources = {r for s in found["Statement"] for r in s["Resource"]} - {"*"}
    assert all(r.startswith(ARN) or ":logs:" in r for r in resources)
    assert "customer managed key" in notes
    assert not any("*" in action for s in found["Statement"] for action in s["Action"])


def test_account_and_region_are_any_if_they_are_not_said(shop):
    found, _ = policy(shop)
    assert found["Statement"][0]["Resource"] == [f"arn:aws:dynamodb:*:*:table/{shop.table}"]
    found, _ = policy(shop, "--account", ACCOUNT, "--region", "cn-north-1")
    arn = f"arn:aws-cn:dynamodb:cn-north-1:{ACCOUNT}:table/{shop.table}"
    assert found["Statement"][0]["Resource"] == [arn]


def test_the_application_is_kept_off_control_items(shop):
    found, _ = policy(shop, "--deny-application", "--table-arn", ARN)
    (statement,) = found["Statement"]
    assert statement["Effect"] == "Deny"
    keys = {"dynamodb:LeadingKeys": ["_sk#*"]}
    assert statement["Condition"] == {"ForAnyValue:StringLike": keys}


def test_a_migration_may_read_the_list_of_keys_that_it_is_told(shop):
    source = ("--keys-from", "s3://lists/keys.jsonl")
    found, _ = policy(shop, "--host", "migrate", "--region", "cn-north-1", *source)
    (resource,) = (s["Resource"] for s in found["Statement"] if s["Action"] == ["s3:GetObject"])
    assert resource == ["arn:aws-cn:s3:::lists/keys.jsonl"]


def test_reasons_are_printed_if_asked_for(shop):
    done = shop.run("iam", "shop", "--why")
    assert "heartbeats" in done.stdout


def test_a_wrong_arn_is_said(shop):
    done = shop.run("iam", "shop", "--table-arn", "arn:aws:s3:::x")
    assert done.returncode == 4
    assert "not the ARN of a table" in done.stderr
