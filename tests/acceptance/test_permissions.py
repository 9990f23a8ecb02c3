"""Every call that a system makes, on each host, is one that `streamkit iam` allows it; sinks' too.

Workers, functions and migrations in virtual time are held against their policies wherever they run
in these tests: see `conftest`. Here is what else there is: each system on functions, and sinks.
"""

import importlib
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import anyio
import pytest
from aiobotocore.client import AioBaseClient

import handlers
from handlers.relay import demo as relay
from handlers.relay.stand_ins import ACCOUNT as THEIRS
from handlers.relay.stand_ins import REGION as THERE
from handlers.relay.stand_ins import stand_ins
from handlers.system import System
from streamkit import TableShape
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.sinks.eventbridge import EventBridge
from streamkit.sinks.firehose import Firehose
from streamkit.sinks.kinesis import Kinesis
from streamkit.sinks.outlets import open_outlets
from streamkit.sinks.s3 import S3Archive
from streamkit.sinks.sink import Delivery
from streamkit.sinks.sns import Sns
from streamkit.sinks.sqs import Sqs
from streamkit.testing import trial
from streamkit.testing.hosts import Functions
from tests.acceptance import test_logs as logs
from tests.permissions import Request, allows, noted, sent

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SYSTEMS = sorted(path.parent.name for path in Path(handlers.__file__).parent.glob("*/demo.py"))
OTHERS = {"logs": {name: TableShape() for name in (logs.BEFORE, logs.ERRORS)}}
"""Tables besides an app's own, at the time at which simulations begin."""
SENDING = {
    "sqs:SendMessage",
    "sns:Publish",
    "events:DescribeEventBus",
    "events:PutEvents",
    "kinesis:PutRecords",
    "firehose:PutRecordBatch",
    "s3:PutObject",
}
"""Every action of a sink there is; `relay` has one sink of each kind."""


def system_of(name):
    if name == "logs":  # its tables are named after months, and simulations begin in another one
        return System(logs.app, logs.Traffic, logs.SHAPE)
    module = importlib.import_module(f"handlers.{name}.demo")
    return getattr(module, "SYSTEM", None) or System(relay.app, relay.Traffic, relay.SHAPE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_functions_of_each_system_may_do_all_that_they_do(name):
    system = system_of(name)
    shape, others = system.shape, OTHERS.get(name, {})
    with noted() as requests:
        trial(system.app, system.traffic(), shape=shape, others=others, acts=20, host=Functions)
    policy = policy_for(system.app, "lambda", AccountPlace.of(account="0" * 12, region="us-east-1"))
    asked = requests.of("function")
    assert len(asked) > 40
    assert [r for r in asked if not allows(policy.to_dict(), r)] == []


@contextmanager
def noting_sends():
    """Note what sinks ask of AWS, through the SDK."""
    asked, call = set(), AioBaseClient._make_api_call

    async def noting(client, operation, parameters):
        service = client.meta.service_model.service_name
        asked.update(sent(service, operation, parameters, THERE, THEIRS))
        return await call(client, operation, parameters)

    with mock.patch.object(AioBaseClient, "_make_api_call", noting):
        yield asked


@pytest.fixture(scope="module")
def sends():
    """What the sinks of the relay ask of AWS, through the real SDK, where the demo's lead."""
    deliveries = [
        Delivery(f"{n:032x}", str(n), f"{n:032x}", f"{n:040d}", {"order_id": str(n)}, NOON)
        for n in range(30)
    ]

    async def send_all(sinks):
        async with open_outlets(sinks) as outlets, anyio.create_task_group() as group:
            for sink in sinks:
                for delivery in deliveries:
                    group.start_soon(outlets.deliver, sink.name, delivery, 60.0)

    with stand_ins() as outside, relay.leading_to(outside, relay.app) as places:
        kinds = (Sqs, Sns, EventBridge, Kinesis, Firehose, S3Archive)
        sinks = [sink for sink in places.by_name.values() if isinstance(sink, kinds)]
        with noting_sends() as asked:
            anyio.run(send_all, sinks)
        policies = {
            host: policy_for(
                relay.app, host, AccountPlace.of(account=THEIRS, region=THERE)
            ).to_dict()
            for host in ("worker", "lambda", "operator", "migrate")
        }
    return asked, policies


@pytest.mark.parametrize("host", ["worker", "lambda", "operator"])
def test_all_that_sinks_do_is_allowed_to_whoever_sends(sends, host):
    asked, policies = sends
    assert {request.action for request in asked} == SENDING
    assert [request for request in asked if not allows(policies[host], request)] == []


def test_nothing_more_is_allowed_than_sinks_do(sends):
    asked, policies = sends
    for request in asked:
        for mine, others in ((THEIRS, "9" * 12), (THERE, "eu-west-9"), ("orders", "payments")):
            foreign = Request(request.action, request.resource.replace(mine, others))
            assert foreign == request or not allows(policies["worker"], foreign)


def test_a_migration_sends_nothing_and_may_not(sends):
    asked, policies = sends
    assert [request for request in asked if allows(policies["migrate"], request)] == []
