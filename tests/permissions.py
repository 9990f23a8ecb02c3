"""IAM as far as the policies here need it, and what each call of the engine asks of it.

A small evaluator: Allow and Deny, `*` and `?` in actions, resources and patterns, and the two
set operators on `dynamodb:LeadingKeys`. Transactions are authorised as the actions in them.
"""

import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest import mock

from aiobotocore.client import AioBaseClient

from streamkit.app import App
from streamkit.cli import loading
from streamkit.migrate.run.running import Runner
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.permissions.place import AccountPlace
from streamkit.testing.world import World

ACCOUNT, REGION = "000000000000", "us-east-1"
"""Those of the local engine."""

_IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
LEASES = "Leases"
"""What the tests call a KCL's lease table."""
_NAMELESS = {"DescribeEndpoints", "ListStreams"}
ACTORS = {"worker": "worker", "function": "lambda", "migrator": "migrate", "operator": "operator"}
"""Whose policy a simulated process needs, by how its name begins."""


@dataclass(frozen=True)
class Request:
    """One action on one resource; `keys` are the partition keys that the call names."""

    action: str
    resource: str
    keys: tuple[str, ...] = ()


def allows(policy, request):
    """Say whether a policy, in JSON's types, lets a request through."""
    found = [s for s in policy["Statement"] if _applies(s, request)]
    return bool(found) and all(statement["Effect"] == "Allow" for statement in found)


def _applies(statement, request):
    return (
        any(_like(pattern, request.action) for pattern in statement["Action"])
        and any(_like(pattern, request.resource) for pattern in statement["Resource"])
        and all(
            _holds(name, keys, request) for name, keys in statement.get("Condition", {}).items()
        )
    )


def _holds(operator, keys, request):
    ((name, patterns),) = keys.items()
    assert name == "dynamodb:LeadingKeys"
    each = [any(_like(pattern, key) for pattern in patterns) for key in request.keys]
    return {"ForAllValues:StringLike": all, "ForAnyValue:StringLike": any}[operator](each)


def _like(pattern, text):
    parts = re.split(r"(\$\{[*?$]\}|[*?])", pattern)
    wild = {"*": ".*", "?": "."}
    made = (wild.get(p) or re.escape(p[2] if p.startswith("${") else p) for p in parts)
    return re.fullmatch("".join(made), text, re.DOTALL) is not None


@dataclass
class Requests:
    """What was asked of the engines of some worlds, by who asked, and the apps that ran there.

    A process that migrates runs an app of its own, which captures; the policy is that of the app
    that is `migrating`.
    """

    by: dict[str, set[Request]] = field(default_factory=dict)
    apps: dict[str, App] = field(default_factory=dict)
    migrating: dict[str, App] = field(default_factory=dict)
    _iterators: dict[str, str] = field(default_factory=dict)

    def of(self, *actors):
        """Return what was asked by processes whose names begin so."""
        return {r for name, found in self.by.items() if name.startswith(actors) for r in found}

    def refused(self, place):
        """Return what processes asked for that their host's policy of no app that ran allows."""
        found = []
        for actor, host in ACTORS.items():
            apps = self.migrating or self.apps
            policies = [
                policy_for(app, host, place, leases=LEASES).to_dict() for app in apps.values()
            ]
            found += [
                (host, r)
                for r in self.of(actor)
                if not any(allows(policy, r) for policy in policies)
            ]
        return sorted(found, key=str)

    def note(self, world, call):
        actor = world._caller[0] if world._caller else ""
        self.by.setdefault(actor, set()).update(self._read(world.engine, call))

    def _read(self, engine, call):
        payload, name = call.payload, call.operation

        def request(action, table, items, index=None):
            pk = engine.tables[table].hash_name
            arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}"
            resource = arn + (f"/index/{index}" if index else "")
            return Request(f"dynamodb:{action}", resource, tuple(str(i[pk]) for i in items))

        if call.service == "dynamodbstreams" and name != "ListStreams":
            if name == "GetRecords":
                arn = self._iterators[payload["ShardIterator"]]
                self._iterators[str(call.body.get("NextShardIterator"))] = arn
            else:
                arn = payload["StreamArn"]
                self._iterators[str(call.body.get("ShardIterator"))] = arn
            yield Request(f"dynamodb:{name}", arn)
        elif name in ("CreateTable", "UpdateTimeToLive"):
            return  # the test itself
        elif name in _NAMELESS:
            yield Request(f"dynamodb:{name}", "*")
        elif name == "TransactWriteItems":
            # AWS does not say whether it looks at each item alone, or at all keys of an action.
            together = defaultdict(list)
            for entry in payload["TransactItems"]:
                ((verb, body),) = entry.items()
                item = _texts(body.get("Item") or body["Key"])
                together[_IN_TRANSACTIONS[verb], body["TableName"]].append(item)
                yield request(_IN_TRANSACTIONS[verb], body["TableName"], [item])
            for (action, table), items in together.items():
                yield request(action, table, items)
        elif name == "BatchGetItem":
            for table, wanted in payload["RequestItems"].items():
                yield request(name, table, map(_texts, wanted["Keys"]))
        elif name == "BatchWriteItem":
            for table, entries in payload["RequestItems"].items():
                bodies = [body for entry in entries for body in entry.values()]
                items = [_texts(body.get("Key") or body["Item"]) for body in bodies]
                yield request(name, table, items)
        elif name == "Query":
            part = re.match(r"(#\w+) = (:\w+)", payload["KeyConditionExpression"])
            value = payload["ExpressionAttributeValues"][part[2]]
            index = payload.get("IndexName")
            pk = engine.tables[payload["TableName"]].hash_name
            yield request(name, payload["TableName"], [{pk: _text(value)}], index)
        else:
            items = [_texts(payload[k]) for k in ("Key", "Item") if k in payload]
            yield request(name, payload["TableName"], items, payload.get("IndexName"))


def _texts(item):
    return {name: _text(value) for name, value in item.items()}


def _text(value):
    return next(iter(value.values()))


def sent(service, operation, parameters, region, account):
    """Yield what a call of a sink asks for; nothing, if it is a call of another service."""
    where = parameters.get

    def arn(service, resource):
        return f"arn:aws:{service}:{region}:{account}:{resource}"

    match service, operation:
        case "sqs", "SendMessageBatch" | "SendMessage":
            yield Request("sqs:SendMessage", arn("sqs", where("QueueUrl").rpartition("/")[2]))
        case "sns", "PublishBatch" | "Publish":
            yield Request("sns:Publish", where("TopicArn"))
        case "events", "DescribeEventBus":
            yield Request("events:DescribeEventBus", arn("events", f"event-bus/{where('Name')}"))
        case "events", "PutEvents":
            for bus in {entry["EventBusName"] for entry in where("Entries")}:
                yield Request("events:PutEvents", arn("events", f"event-bus/{bus}"))
        case "kinesis", "PutRecords":
            yield Request("kinesis:PutRecords", arn("kinesis", f"stream/{where('StreamName')}"))
        case "firehose", "PutRecordBatch":
            name = f"deliverystream/{where('DeliveryStreamName')}"
            yield Request("firehose:PutRecordBatch", arn("firehose", name))
        case "s3", "PutObject":
            yield Request("s3:PutObject", f"arn:aws:s3:::{where('Bucket')}/{where('Key')}")
        case "dynamodb" | "dynamodbstreams", _:
            return
        case _:
            yield Request(f"{service}:{operation}", "*")  # what nobody has thought of


@contextmanager
def noted():
    """Note what is asked of the engine of every world meanwhile."""
    requests, saw, route, began = Requests(), World._saw, App.router, Runner.__post_init__

    def seen(world, call):
        saw(world, call)
        requests.note(world, call)

    def routed(app, schema):  # whatever runs an app asks for its router
        whole = app.head  # a listener runs with its app
        requests.apps[whole.name] = whole
        return route(app, schema)

    def begun(runner):
        requests.migrating[runner.app.name] = runner.app
        began(runner)

    with (
        mock.patch.object(World, "_saw", seen),
        mock.patch.object(App, "router", routed),
        mock.patch.object(Runner, "__post_init__", begun),
    ):
        yield requests


HOSTS = {"worker": ("worker",), "migrate": ("migrate", "operator")}
"""Whose policies a command needs, each alone, by its first word; others need the operator's."""


@contextmanager
def commanded(arguments, table, partition_key):
    """Hold what a command asks of AWS, in this process, against the policy of its host.

    `table` is that of commands that name no app; `partition_key` tells that of a table by its name.
    """
    requests, apps, load, call = Requests(), [], loading.load_app, AioBaseClient._make_api_call
    asked, engine = set(), SimpleNamespace(tables=_Keys(partition_key))

    def loaded(name):
        apps.append(load(name))
        return apps[-1]

    async def noting(client, operation, parameters):
        if operation == "GetRecords":  # whose iterators begin with the stream, on this engine
            stream = parameters["ShardIterator"].partition("|")[0]
            asked.add(Request("dynamodb:GetRecords", stream))
        else:
            service = client.meta.service_model.service_name
            made = SimpleNamespace(
                service=service, operation=operation, payload=parameters, body={}
            )
            asked.update(requests._read(engine, made))
        return await call(client, operation, parameters)

    with (
        mock.patch.object(loading, "load_app", loaded),
        mock.patch.object(AioBaseClient, "_make_api_call", noting),
    ):
        yield
    place, apps = AccountPlace.of(account=ACCOUNT, region=REGION), apps or [App("x", table=table)]
    for host in HOSTS.get(arguments[0], ("operator",)):
        policies = [policy_for(app, host, place, leases=LEASES).to_dict() for app in apps]
        refused = [r for r in asked if not any(allows(policy, r) for policy in policies)]
        assert not refused, f"{host} may not: {refused}"


class _Keys(dict):
    def __init__(self, partition_key):
        self._partition_key = partition_key

    def __missing__(self, table):
        self[table] = SimpleNamespace(hash_name=self._partition_key(table))
        return self[table]
