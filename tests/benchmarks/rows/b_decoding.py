"""Decoding pages: against botocore's parser, boto3's deserialiser and pydantic, on the same bytes."""

import gc
from collections.abc import Callable

import boto3.session
from boto3.dynamodb.types import TypeDeserializer
from botocore.parsers import create_parser

from streamkit.archive.link import Lines, records_of
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import ImageDecoder, Router, parse_page
from tests.benchmarks.deals import FULL, Deal, page_body
from tests.benchmarks.yardstick import Figure, in_turns, row

SCHEMA = TableSchema("deals", "PK", "SK", "S", "S", {})
USUAL = "botocore, boto3 and pydantic"
RATE = "records/CPU s"
LONG = 10
"""How often a fast contestant reads its page in a round, so that no round is too short."""


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


def images(new: bool, old: bool) -> Callable[[bytes], None]:
    router, decode_image = Router([Deal], SCHEMA, "_sk#"), ImageDecoder(Deal, SCHEMA).decode

    def decode(body: bytes) -> None:
        for record in parse_page(body).records:
            assert router.route(record) is Deal
            if new:
                decode_image(record.new_image)
            if old:
                decode_image(record.old_image)

    return decode


def beside_the_usual(decode: Callable[[bytes], None]) -> Figure:
    """Return records per CPU second, and how many times the usual way that is.

    The search for garbage is off meanwhile: whether it falls into a short round is chance.
    """
    body, usual = page_body(0), usual_way()

    def often() -> None:
        for _ in range(LONG):
            decode(body)

    gc.collect()
    gc.disable()
    try:
        spent, usually = in_turns(often, lambda: usual(body))
    finally:
        gc.enable()
    return Figure(FULL * LONG / spent, usually * LONG / spent)


@row("decoding: both images typed", unit=RATE, of=USUAL, bar=8)
def both_images() -> Figure:
    return beside_the_usual(images(new=True, old=True))


@row("decoding: one image typed", unit=RATE, of=USUAL, bar=14)
def one_image() -> Figure:
    return beside_the_usual(images(new=True, old=False))


@row("decoding: only routed", unit=RATE, of=USUAL, bar=34)
def only_routed() -> Figure:
    return beside_the_usual(images(new=False, old=False))


@row("decoding: an archive's records", unit=RATE, of="the stream's pages", bar=0.75)
def archived() -> Figure:
    """The same records, from a link of an archive and from replies of the stream."""
    bodies = [page_body(number) for number in range(LONG)]
    lines = Lines()
    for body in bodies:
        lines.add(parse_page(body).records)
    packed = lines.body()

    def from_archive() -> None:
        for _ in records_of(packed):
            pass

    def from_stream() -> None:
        for body in bodies:
            parse_page(body)

    gc.collect()
    gc.disable()
    try:
        spent, usually = in_turns(from_archive, from_stream)
    finally:
        gc.enable()
    return Figure(FULL * LONG / spent, usually / spent)
