"""A shard in memory, for readers without an engine: its records are numbers, and are trimmed."""

from dataclasses import dataclass

import msgspec
from botocore.exceptions import ClientError

from streamkit.stream.decode import Page, parse_page

CREATED = 1_700_000_000
"""When a record was created that has the number 0; each is a second younger than the one before."""


def at(number):
    return f"{number:040}"


def page_of(*numbers, pk="PK"):
    records = [
        {
            "eventName": "INSERT",
            "eventID": f"e{number}",
            "dynamodb": {
                "Keys": {pk: {"S": f"N#{number}"}},
                "SequenceNumber": str(number),
                "ApproximateCreationDateTime": CREATED + number,
            },
        }
        for number in numbers
    ]
    return parse_page(msgspec.json.encode({"Records": records}))


@dataclass
class ShortStream:
    """Has the records behind `gone` up to `end`, one page for all.

    `missing` says that the service has forgotten it. The service refuses to open it behind a record
    that is trimmed itself; it is `strict` about that.

    """

    end: int = 0
    gone: int = 0
    closed: bool = False
    missing: bool = False
    opened: int = 0
    strict: bool = False

    async def get_iterator(self, **where) -> str:
        self.opened += 1
        if self.missing:
            raise _error("ResourceNotFoundException")
        kind, number = where["ShardIteratorType"], int(where.get("SequenceNumber", self.gone))
        after = number - 1 if kind == "AT_SEQUENCE_NUMBER" else number
        begins_there = kind == "AFTER_SEQUENCE_NUMBER" and self.strict
        if after < self.gone or (begins_there and 0 < self.gone == after):
            raise _error("TrimmedDataAccessException")
        return f"{after}/{self.opened}"

    async def get_records(self, iterator: str) -> Page:
        after = int(iterator.partition("/")[0])
        if after < self.gone:
            raise _error("TrimmedDataAccessException")
        page = page_of(*range(after + 1, self.end + 1))
        following = None if self.closed else f"{max(after, self.end)}/{self.opened}"
        read_at = float(CREATED + self.end) + 0.5
        return msgspec.structs.replace(page, next_iterator=following, read_at=read_at)


def _error(code):
    return ClientError({"Error": {"Code": code}}, "GetRecords")
