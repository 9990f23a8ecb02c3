"""The packaged functions, invoked by Lambda's own runtime client, with the engine as their table."""

import json
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("awslambdaric", reason="Lambda's runtime client is not there for this platform")

from tests.integration.processes import Writer, expected, found, running
from tests.integration.runtime_api import FunctionError, function
from tests.simulation.shop import TABLE

FUNCTIONS = "tests.integration.lambda_functions"


def call(site, operation, **request):
    """Ask the stream, and return its JSON as it is."""
    headers = {
        "X-Amz-Target": f"DynamoDBStreams_20120810.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/dynamodb/aws4_request",
    }
    with urlopen(Request(site.url, json.dumps(request).encode(), headers)) as reply:
        return json.load(reply)


def records_of(site):
    """Every record of the table's stream, as the mapping sends it."""
    (stream,) = call(site, "ListStreams", TableName=TABLE)["Streams"]
    arn = stream["StreamArn"]
    found = []
    for shard in call(site, "DescribeStream", StreamArn=arn)["StreamDescription"]["Shards"]:
        where = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call(site, "GetShardIterator", StreamArn=arn, **where)["ShardIterator"]
        while records := call(site, "GetRecords", ShardIterator=iterator):
            found += [
                record | {"eventSource": "aws:dynamodb", "eventSourceARN": arn}
                for record in records["Records"]
            ]
            iterator = records.get("NextShardIterator")
            if not records["Records"]:
                break
    return found


def is_sale(record):
    return record["dynamodb"]["Keys"]["PK"]["S"].startswith("SALE#")


def test_the_packaged_functions_keep_the_table_exact_under_the_real_runtime_client(tmp_path):
    with running(tmp_path) as site:
        writer = Writer(site.client, seed=1)
        writer.write(150)
        sales = [record for record in records_of(site) if is_sale(record)]
        environment = site.environment
        log = tmp_path / "function.log"
        with function(f"{FUNCTIONS}.handler", environment, log) as api:
            for start in range(0, len(sales), 40):
                answer, _ = api.invoke({"Records": sales[start : start + 40]})
                assert answer == {"batchItemFailures": []}
            wanted = expected([writer]) | {"AUDIT": {}}
            assert found(site) == wanted
            _, seconds = api.invoke({"Records": sales[:40]})
            own = [record for record in records_of(site) if not is_sale(record)]
            answer, _ = api.invoke({"Records": own})
            assert answer == {"batchItemFailures": []}
            assert found(site) == wanted, "repeated, and its own records"
            with pytest.raises(FunctionError, match=r"aws:sqs.*ConfigurationError"):
                api.invoke({"Records": [{"eventSource": "aws:sqs"}]})
            window = {"window": {}, "shardId": "shardId-1", "state": {"kept": 1}, "Records": []}
            assert api.invoke(window)[0] == {"batchItemFailures": [], "state": {"kept": 1}}
        assert seconds < 5
        with function(f"{FUNCTIONS}.maintenance", environment, tmp_path / "m.log") as api:
            counts, _ = api.invoke({"source": "aws.events"})
            assert counts == {"queues": 0, "stuck": 0, "done": 0, "failed": 0}
