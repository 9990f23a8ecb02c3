"""How fast pages are decoded, against botocore + boto3's deserialiser + pydantic, in one run.

The contestants take turns on the same pages, so that a busy machine slows all of them alike, and
the medians of several rounds are compared. Speeds are records per second.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import boto3.session
import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.parsers import create_parser

from streamkit.decode import ImageDecoder, Router, parse_page
from streamkit.entity import Entity
from streamkit.model.schema import TableSchema

RECORDS = 700
PAGES = 3
ROUNDS = 9


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


SCHEMA = TableSchema("deals", "PK", "SK", "S", "S", {})


def image(n: int, status: str) -> dict[str, Any]:
    deal_id = f"2KTvMZGIvZYrTdGMAmWTX{n:06d}"
    return {
        "PK": {"S": f"DEAL#{deal_id}"},
        "SK": {"S": f"DEAL#{deal_id}"},
        "deal_id": {"S": deal_id},
        "brand": {"S": f"BRAND-{n % 17}"},
        "category": {"S": "ELECTRONICS"},
        "title": {
            "S": f"Half price on headphones, number {n}, while stocks last, at this shop only"
        },
        "link": {"S": f"https://deals.example.com/electronics/headphones/{deal_id}"},
        "status": {"S": status},
        "views": {"N": str(n * 7919 % 100_000)},
        "price": {"N": f"{n % 900}.95"},
        "created_at": {"S": f"2024-05-01T10:{n % 60:02d}:12.123456Z"},
        "tags": {"L": [{"S": "headphones"}, {"S": "half-price"}]},
        "labels": {"M": {"shop": {"S": "example"}, "country": {"S": "Slovenia"}}},
    }


def page_body(seed: int) -> bytes:
    records = []
    for n in range(seed * RECORDS, (seed + 1) * RECORDS):
        new = image(n, "SHIPPED")
        records.append(
            {
                "awsRegion": "us-east-1",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_714_557_600.0,
                    "Keys": {"PK": new["PK"], "SK": new["SK"]},
                    "NewImage": new,
                    "OldImage": image(n, "PLACED"),
                    "SequenceNumber": f"{n + 1938250000:026d}",
                    "SizeBytes": 1100,
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
                "eventID": f"{n:032x}",
                "eventName": "MODIFY",
                "eventSource": "aws:dynamodb",
                "eventVersion": "1.1",
            }
        )
    page = {"Records": records, "NextShardIterator": "AAAAAAAAAAF" * 20}
    return json.dumps(page, separators=(",", ":")).encode()


def usual_way() -> Callable[[bytes], None]:
    service = boto3.session.Session()._session.get_service_model("dynamodbstreams")
    shape = service.operation_model("GetRecords").output_shape
    parser = create_parser("json")
    deserialize = TypeDeserializer().deserialize

    def decode(body: bytes) -> None:
        page = parser.parse({"status_code": 200, "headers": {}, "body": body}, shape)
        for record in page["Records"]:
            for name in ("NewImage", "OldImage"):
                item = record["dynamodb"][name]
                Deal.model_validate({key: deserialize(value) for key, value in item.items()})

    return decode


def both_images() -> Callable[[bytes], None]:
    router, decode_image = Router([Deal], SCHEMA, "_sk#"), ImageDecoder(Deal, SCHEMA).decode

    def decode(body: bytes) -> None:
        for record in parse_page(body).records:
            if router.route(record) is Deal:
                decode_image(record.new_image)
                decode_image(record.old_image)

    return decode


def one_image() -> Callable[[bytes], None]:
    router, decode_image = Router([Deal], SCHEMA, "_sk#"), ImageDecoder(Deal, SCHEMA).decode

    def decode(body: bytes) -> None:
        for record in parse_page(body).records:
            if router.route(record) is Deal:
                decode_image(record.new_image)

    return decode


def only_routed() -> Callable[[bytes], None]:
    router = Router([Deal], SCHEMA, "_sk#")

    def decode(body: bytes) -> None:
        for record in parse_page(body).records:
            assert router.route(record) is Deal

    return decode


@pytest.mark.benchmark
def test_decoding_is_many_times_faster_than_the_usual_way() -> None:
    bodies = [page_body(seed) for seed in range(PAGES)]
    contestants = {
        "usual": usual_way(),
        "both images": both_images(),
        "one image": one_image(),
        "only routed": only_routed(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    for turn in range(ROUNDS + 1):
        for name, decode in contestants.items():
            start = time.perf_counter()
            for body in bodies:
                decode(body)
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - start)

    median = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = {name: median["usual"] / time for name, time in median.items()}
    print(f"\n{len(bodies[0]) / RECORDS:,.0f} bytes a record")
    for name, time_ in median.items():
        print(f"{name:12} {RECORDS * PAGES / time_:10,.0f} records/s  {ratio[name]:6.1f} times")

    assert ratio["both images"] >= 8
    assert ratio["one image"] >= 14
    assert ratio["only routed"] >= 60
