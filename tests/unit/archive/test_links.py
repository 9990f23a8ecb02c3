"""A link is a gzip file that says what it holds, and nothing that was altered is read from it."""

import gzip
import json
import random
from itertools import product

import pytest

from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink, Lines, Link, records_of
from streamkit.stream.decode import parse_page


def body_of(*numbers, pad=0):
    records = [
        {
            "eventID": f"{n}",
            "eventName": "INSERT",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_700_000_000 + n,
                "Keys": {"PK": {"S": f"item {n}"}},
                "NewImage": {"PK": {"S": f"item {n}"}, "pad": {"S": "x" * pad}},
                "SequenceNumber": str(n),
                "SizeBytes": 20,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        }
        for n in numbers
    ]
    return json.dumps({"Records": records, "NextShardIterator": "next"}).encode()


def lines_of(*numbers, pad=0):
    lines = Lines()
    lines.add(parse_page(body_of(*numbers, pad=pad)).records)
    return lines


def link_of(*numbers, **fields):
    last = f"{numbers[-1]:040}" if numbers else ORIGIN
    return Link(stream="T/now", shard="s1", **({"after": ORIGIN, "last": last} | fields))


def sealed(*numbers, **fields):
    return link_of(*numbers, **fields).sealed(lines_of(*numbers).body())[1]


def test_the_records_of_a_link_are_those_that_were_read():
    read = parse_page(body_of(1, 2, 3)).records
    link, body = Link.opened("name", sealed(1, 2, 3, count=3))
    assert [r for page in records_of(body) for r in page.records] == list(read)
    assert (link.after, link.last, link.count) == (ORIGIN, f"{3:040}", 3)


def test_a_record_that_cannot_be_read_comes_back_as_it_was():
    broken = body_of(1, 2).replace(b'"PK": {"S": "item 2"}}, "NewImage"', b'"PK": 7}, "NewImage"')
    page = parse_page(broken)
    assert page.flawed
    lines = Lines()
    lines.add(page.records)
    (back,) = records_of(lines.body())
    assert back.flawed
    assert back.records == page.records


def test_gzip_reads_the_records_alone():
    text = gzip.decompress(sealed(1, 2))
    assert [json.loads(line)["dynamodb"]["SequenceNumber"] for line in text.splitlines()] == [
        "1",
        "2",
    ]
    assert gzip.decompress(sealed(kind="hole", last=BEYOND)) == b""


def test_a_large_link_is_read_in_pages():
    numbers = range(1, 20_000)
    lines = Lines()
    rng = random.Random(0)
    lines.add(parse_page(body_of(*numbers)).records)
    for _ in range(3):
        pages = list(records_of(lines_of(*range(1, 3000), pad=rng.randrange(900)).body()))
    assert [r.sequence_number for p in pages for r in p.records] == [str(n) for n in range(1, 3000)]
    pages = list(records_of(lines.body()))
    assert len(pages) > 1
    assert [r.sequence_number for p in pages for r in p.records] == [str(n) for n in numbers]


def test_every_altered_byte_is_found():
    stored = sealed(1, 2, count=2)
    for place, bits in product(range(len(stored)), (0x01, 0x80, 0xFF)):
        altered = bytearray(stored)
        altered[place] ^= bits
        with pytest.raises(DamagedLink):
            Link.opened("name", bytes(altered))
    for size in range(len(stored)):
        with pytest.raises(DamagedLink):
            Link.opened("name", stored[:size])


class LaterLink(Link, frozen=True, kw_only=True):
    """What a later streamkit might store."""

    codec: str = "zstd"


@pytest.mark.parametrize("kind", [Link, LaterLink])
def test_a_link_of_a_later_format_is_not_guessed_at(kind):
    link = kind(stream="T/now", shard="s1", after=ORIGIN, last=f"{1:040}", format=2)
    with pytest.raises(DamagedLink, match="newer format, 2: upgrade"):
        Link.opened("name", link.sealed(lines_of(1).body())[1])


@pytest.mark.parametrize("noise", [False, True])
def test_pages_are_of_one_size_however_well_records_are_compressed(noise):
    """Memory does not grow with an object: a megabyte of the same letter is a thousand bytes."""
    lines, rng = Lines(), random.Random(0)
    for number in range(400):
        pad = "".join(rng.choices("abcdefghijklmnop", k=6000)) if noise else "x" * 6000
        page = parse_page(
            body_of(number).replace(b'"pad": {"S": ""}', b'"pad": {"S": "%s"}' % pad.encode())
        )
        lines.add(page.records)
    pages = list(records_of(lines.body()))
    assert [int(r.sequence_number) for p in pages for r in p.records] == list(range(400))
    assert all(page.size < 140_000 for page in pages)
    assert len(pages) < 60
