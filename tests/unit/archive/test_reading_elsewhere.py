"""What the page says about reading an archive with other programs fits what its objects hold."""

import gzip
import json
import re
from functools import reduce
from operator import getitem
from pathlib import Path

import msgspec
import pytest

from streamkit.archive.link import Lines, Link
from streamkit.stream.decode import Record, parse_page
from streamkit.stream.decode.envelope import StreamRecord

PAGE = Path(__file__).parents[3] / "docs" / "archive.md"
VALUES = [
    {"S": "text"},
    {"N": "1"},
    {"B": "eA=="},
    {"BOOL": True},
    {"NULL": True},
    {"SS": ["a"]},
    {"L": [{"N": "1"}, {"S": "a"}]},
    {"M": {"x": {"N": "1"}}},
]
IMAGE = {f"field{number}": value for number, value in enumerate(VALUES)}
KEYS = {"PK": {"S": "ORDER#7"}, "SK": {"N": "1.5"}}


def stored():
    """Return the lines of an object with every kind of change, and every type of attribute."""
    inner = {
        "ApproximateCreationDateTime": 1_700_000_000.0,
        "Keys": KEYS,
        "SizeBytes": 20,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    images = [{"NewImage": KEYS | IMAGE}, {"OldImage": KEYS | IMAGE, "NewImage": KEYS}]
    images.append({"OldImage": KEYS})
    names = "INSERT", "MODIFY", "REMOVE"
    records = [
        {
            "eventID": str(number),
            "eventName": names[number],
            "userIdentity": {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"},
            "dynamodb": inner | images[number] | {"SequenceNumber": str(10**20 + number)},
        }
        for number in range(3)
    ]
    lines = Lines()
    body = {"Records": records, "NextShardIterator": "next"}
    lines.add(parse_page(json.dumps(body).encode()).records)
    link = Link(stream="T/now", shard="s", after="0" * 40, last="9" * 40)
    _, body = link.sealed(lines.body())
    return [json.loads(line) for line in gzip.decompress(body).splitlines()]


def columns(text):
    """Return the columns of a table, or the fields of a struct, with their types; or a type."""
    found, depth, part = [], 0, ""
    for sign in text.strip() + ",":
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            found.append(part.strip())
            part = ""
        else:
            part += sign
    return dict(re.split(r"[:\s]\s*", one, maxsplit=1) for one in found)


def fits(kind, value):
    """Return whether a column of a type takes a value; one of texts takes all, as JSON."""
    inside = kind[kind.find("<") + 1 : -1]
    if kind.startswith("struct<"):
        known = columns(inside)
        return all(fits(known.get(name.lower(), ""), one) for name, one in value.items())
    if kind.startswith("map<string, "):
        of = inside.removeprefix("string, ")
        return type(value) is dict and all(fits(of, one) for one in value.values())
    return kind == "string" or type(value) is {"double": float, "bigint": int}.get(kind)


@pytest.fixture
def table():
    ((_, body),) = re.findall(
        r"CREATE EXTERNAL TABLE (\w+) \((.*?)\n\)", PAGE.read_text(), re.DOTALL
    )
    return columns(re.sub(r"\s+", " ", body).replace("< ", "<").replace(" >", ">"))


def test_the_columns_for_athena_take_what_objects_hold(table):
    whole = f"struct<{', '.join(f'{name}: {kind}' for name, kind in table.items())}>"
    assert [fits(whole, line) for line in stored()] == [True] * 3


def test_the_columns_for_athena_are_all_that_a_record_may_have(table):
    flaw = {"_sk_flaw"}  # of records that nobody can read
    for kind, known in ((Record, table), (StreamRecord, columns(table["dynamodb"][7:-1]))):
        names = {field.encode_name for field in msgspec.structs.fields(kind)} - flaw
        assert {name.lower() for name in names} == known.keys()


def test_the_columns_have_the_names_that_records_have():
    named = dict(re.findall(r"'mapping\.(\w+)' = '(\w+)'", PAGE.read_text()))
    names = {
        field.encode_name
        for kind in (Record, StreamRecord)
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in {"_sk_flaw", "dynamodb"}
    }
    assert named == {name.lower(): name for name in names}


def test_the_path_in_the_example_for_athena_leads_to_a_key():
    (path,) = re.findall(r"SELECT dynamodb\.keys(\S+),", PAGE.read_text())
    names = re.findall(r"\['(\w+)'\]", path)
    for line in stored():
        assert reduce(getitem, names, line["dynamodb"]["Keys"]) == KEYS["PK"]["S"]


def test_the_path_in_the_example_for_duckdb_leads_to_the_keys():
    (path,) = re.findall(r'duckdb -c "SELECT ([\w.]+) FROM read_json', PAGE.read_text())
    for line in stored():
        assert reduce(getitem, path.split("."), line) == KEYS
