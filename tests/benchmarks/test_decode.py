"""How fast pages are decoded, against botocore + boto3's deserialiser + pydantic, in one run.

The contestants take turns on the same pages, so that a busy machine slows all of them alike, and
the medians of several rounds are compared. Speeds are records per second.
"""

import gc
import statistics
import time
from collections.abc import Callable

import boto3.session
import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.parsers import create_parser

from streamkit.decode import ImageDecoder, Router, parse_page
from streamkit.model.schema import TableSchema
from tests.benchmarks.deals import Deal, page_body

RECORDS = 700
PAGES = 3
ROUNDS = 9


SCHEMA = TableSchema("deals", "PK", "SK", "S", "S", {})


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
    bodies = [page_body(seed, RECORDS) for seed in range(PAGES)]
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
