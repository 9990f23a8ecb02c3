"""Deals: the items of the benchmarks, and pages of a stream that are full of their changes.

A record has 1.6 KB and both images, so that 687 of them fill a page of GetRecords. Every change
raises the views of a deal by a number that is known, and every tenth moves it to another brand, so
that what an aggregate must come to can be computed.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from streamkit import Entity

FULL = 687
"""Records of a page that is full: DynamoDB ends a page at 1 MB."""
BRANDS = 20
NUMBERED = 10_000
"""Sequence numbers of a page; each page has its own ten thousand."""
CYCLE = 8
"""Pages that are made; behind the last one they come again, under new sequence numbers."""


class Deal(Entity, pk="DEAL#{deal_id}", sk="DEAL#{deal_id}"):
    deal_id: str
    brand: str
    category: str
    title: str
    link: str
    status: str
    views: int
    price: Decimal
    created_at: datetime
    tags: list[str]
    labels: dict[str, str]


def image(n: int, status: str, views: int = 0, brand: int | None = None) -> dict[str, Any]:
    """Return the image of deal `n` in wire form."""
    deal_id = f"2KTvMZGIvZYrTdGMAmWTX{n:06d}"
    return {
        "PK": {"S": f"DEAL#{deal_id}"},
        "SK": {"S": f"DEAL#{deal_id}"},
        "deal_id": {"S": deal_id},
        "brand": {"S": f"BRAND-{(n if brand is None else brand) % BRANDS}"},
        "category": {"S": "ELECTRONICS"},
        "title": {
            "S": f"Half price on headphones, number {n}, while stocks last, at this shop only"
        },
        "link": {"S": f"https://deals.example.com/electronics/headphones/{deal_id}"},
        "status": {"S": status},
        "views": {"N": str(n * 7919 % 100_000 + views)},
        "price": {"N": f"{n % 900}.95"},
        "created_at": {"S": f"2024-05-01T10:{n % 60:02d}:12.123456Z"},
        "tags": {"L": [{"S": "headphones"}, {"S": "half-price"}]},
        "labels": {"M": {"shop": {"S": "example"}, "country": {"S": "Slovenia"}}},
    }


def growth(n: int) -> int:
    """Return by how much the change of deal `n` raises its views."""
    return n % 9 + 1


def record(n: int, number: int, created: float) -> dict[str, Any]:
    """Return the record of a change of deal `n`."""
    new = image(n, "SHIPPED", growth(n), n + 7 if n % 10 == 0 else None)
    return {
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": created,
            "Keys": {"PK": new["PK"], "SK": new["SK"]},
            "NewImage": new,
            "OldImage": image(n, "PLACED"),
            "SequenceNumber": f"1{number:025d}",
            "SizeBytes": 1100,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventID": f"{n:032x}",
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "eventVersion": "1.1",
    }


def page_body(page: int, records: int = FULL, created: float = 1_714_557_600.0) -> bytes:
    """Return the reply of GetRecords that is page `page`, with an iterator of AWS's length."""
    first = page * records
    made = [record(first + place, page * NUMBERED + place, created) for place in range(records)]
    reply = {"Records": made, "NextShardIterator": "AAAAAAAAAAF" * 20}
    return json.dumps(reply, separators=(",", ":")).encode()


@dataclass
class Pages:
    """An endless shard: page after page of changes of deals, in bytes.

    Only the first pages are made. Later ones are the same changes under later sequence numbers,
    which costs the server next to nothing.
    """

    records: int = FULL

    def __post_init__(self) -> None:
        created = float(int(time.time()))
        self._open = [self._unended(page, created) for page in range(CYCLE)]

    def _unended(self, page: int, created: float) -> bytes:
        body = page_body(page, self.records, created)
        return body[: body.rindex(b'"AAAA')]

    def body(self, page: int, following: str) -> bytes:
        """Return page `page` of a shard, with the iterator of the page behind it."""
        turn, place = divmod(page, CYCLE)
        body = self._open[place]
        if turn:
            # The first digit of a sequence number is a 1, so that it has no leading zero.
            prefix = b'"SequenceNumber":"1%013d'
            body = body.replace(prefix % 0, prefix % turn)
        return body + b'"' + following.encode() + b'"}'

    def page_after(self, sequence_number: str) -> int:
        """Return the page that begins behind a record."""
        turn, rest = divmod(int(sequence_number[1:]), 10**12)
        return turn * CYCLE + rest // NUMBERED + 1

    def changed(self, pages: int) -> Iterator[int]:
        """Return the deals of the first so many pages, change by change."""
        for page in range(pages):
            first = page % CYCLE * self.records
            yield from range(first, first + self.records)


def views_of(pages: int, records: int) -> int:
    """Return by how much the changes of so many pages of a shard raise the views of all deals."""
    turns, rest = divmod(pages, CYCLE)
    whole = sum(map(growth, range(CYCLE * records)))
    return turns * whole + sum(map(growth, range(rest * records)))
