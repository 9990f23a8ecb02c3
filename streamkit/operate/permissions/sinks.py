"""Compute the permissions for each kind of sink, for an archive, and for a list of keys. Pure.

In: a sink, and the account and Region of the app. Out: a statement for a sink of AWS; None for a
sink that IAM does not protect, or that is the user's own.
"""

from typing import Any
from urllib.parse import urlsplit

from streamkit.archive.bucket import BucketArchive
from streamkit.archive.objects import Archive
from streamkit.migrate.run.exports import SUMMARY
from streamkit.migrate.run.keys import index_of
from streamkit.operate.permissions.document import Statement, literal
from streamkit.operate.permissions.place import AccountPlace
from streamkit.sinks.eventbridge import EventBridge
from streamkit.sinks.firehose import Firehose
from streamkit.sinks.kinesis import Kinesis
from streamkit.sinks.s3 import S3Archive
from streamkit.sinks.sns import Sns
from streamkit.sinks.sqs import Sqs


def sink_statement(sink: Any, place: AccountPlace, sid: str) -> Statement | None:
    """Return the statement that allows deliveries to a sink; None if IAM does not protect it."""
    found = _needed(sink, place)
    if found is None:
        return None
    actions, resource = found
    return Statement(sid, actions, (resource,), f"Send to the sink {sink.name!r}")


def archive_statements(archive: Archive, place: AccountPlace) -> list[Statement]:
    """Return the statements that a worker needs for an archive; none for a directory."""
    if not isinstance(archive, BucketArchive):
        return []
    bucket = f"arn:{place.partition}:s3:::{archive.bucket}"
    actions, objects = ("s3:GetObject", "s3:PutObject"), f"{bucket}/{archive.prefix}*"
    # Without the right to list, S3 answers 403 for an object that is not there.
    return [
        Statement("Archive", actions, (objects,), "write the archive, and read it"),
        Statement("ArchiveList", ("s3:ListBucket",), (bucket,), "find objects of the archive"),
    ]


def keys_statements(source: str, place: AccountPlace, table: str) -> list[Statement]:
    """Return the statement that a migration needs for chosen items; none for a file or a query.

    `table` is the ARN of its table, whose items it may query.
    """
    parts, why = urlsplit(source), "`--keys-from` reads the keys of the chosen items"
    if name := index_of(source):
        action = "dynamodb:Query" if "{" in source else "dynamodb:Scan"
        return [Statement("KeysOfItems", (action,), (f"{table}/index/{name}",), why)]
    if parts.scheme != "s3":
        return []
    item = f"arn:{place.partition}:s3:::{parts.netloc}{literal(parts.path)}"
    if not item.endswith(SUMMARY):
        return [Statement("KeysOfItems", ("s3:GetObject",), (item,), why)]
    folder, bucket = item.removesuffix(SUMMARY), f"arn:{place.partition}:s3:::{parts.netloc}"
    items = item, f"{folder}manifest-files.json", f"{folder}data/*"
    whole = "`begin` and `plan` look whether all files of the export are there"
    return [
        Statement("KeysOfItems", ("s3:GetObject",), items, why),
        Statement("KeysList", ("s3:ListBucket",), (bucket,), whole),
    ]


def _needed(sink: Any, place: AccountPlace) -> tuple[tuple[str, ...], str] | None:
    match sink:
        case Sqs():
            return ("sqs:SendMessage",), _queue_arn(sink.queue_url, place)
        case Sns():
            return ("sns:Publish",), sink.topic_arn
        case EventBridge():
            # Opening the sink looks up the bus.
            actions = ("events:DescribeEventBus", "events:PutEvents")
            return actions, _named(sink.bus, "events", "event-bus/", place)
        case Kinesis():
            return ("kinesis:PutRecords",), _named(sink.stream, "kinesis", "stream/", place)
        case Firehose():
            arn = _named(sink.stream, "firehose", "deliverystream/", place)
            return ("firehose:PutRecordBatch",), arn
        case S3Archive():
            key = f"{sink.bucket}/{sink.prefix}date=*"
            return ("s3:PutObject",), f"arn:{place.partition}:s3:::{key}"
    return None


def _named(name: str, service: str, kind: str, place: AccountPlace) -> str:
    return name if name.startswith("arn:") else place.arn(service, kind + name)


def _queue_arn(url: str, place: AccountPlace) -> str:
    """Return the ARN of a queue from its URL, which contains its Region, account and name."""
    parts = urlsplit(url)
    host = (parts.hostname or "").split(".")
    account, _, name = parts.path.strip("/").rpartition("/")
    account = account.rpartition("/")[2]
    region = host[1] if len(host) > 3 and host[0] == "sqs" else place.region
    return f"arn:{place.partition}:sqs:{region}:{account or place.account}:{name}"
