"""A origin counts only where a write of this app's handlers has just put it."""

import json

import pytest
from msgspec import Raw

from streamkit.model.origin import APPLICATION, ORIGIN, WriteOrigin, read_origin

TEXT = WriteOrigin("handler", 3).text("copy", "app/17")


def image(origin=None, **attributes):
    item = {"pk": {"S": "A"}} | attributes
    if origin is not None:
        item[ORIGIN] = {"S": origin}
    return Raw(json.dumps(item).encode())


def test_a_new_mark_says_who_wrote_and_how_many_handlers_came_before():
    assert read_origin(image(n={"N": "1"}), image(TEXT, n={"N": "2"})) == WriteOrigin("handler", 3)
    assert read_origin(None, image(TEXT)) == WriteOrigin("handler", 3)
    other = WriteOrigin("migration", 0).text("0003", "x")
    assert read_origin(image(TEXT, n={"N": "1"}), image(other)) == WriteOrigin("migration", 0)


def test_an_update_by_the_application_leaves_the_mark_and_is_its_own():
    assert read_origin(image(TEXT, n={"N": "1"}), image(TEXT, n={"N": "2"})) is APPLICATION


def test_a_put_by_the_application_and_a_deletion_carry_no_mark():
    assert read_origin(image(TEXT), image()) is APPLICATION
    assert read_origin(image(TEXT), None) is APPLICATION


def test_a_write_that_changes_nothing_but_the_mark_is_no_change():
    other = WriteOrigin("handler", 3).text("copy", "app/18")
    tags = {"SS": ["a", "b"]}, {"SS": ["b", "a"]}
    assert read_origin(image(TEXT, tags=tags[0]), image(other, tags=tags[1])) is None
    assert read_origin(image(), image(TEXT)) is None
    assert read_origin(image(n={"N": "1"}), image(TEXT, n={"N": "1.0"})) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "handler",
        "handler:x:1:h",
        "handler:-1:1:h",
        "somebody:1:1:h",
        "handler:²:1:h",
        f"handler:{'9' * 5000}:1:h",
    ],
)
def test_what_is_no_mark_of_ours_counts_for_nothing(text):
    assert read_origin(None, image(text)) is APPLICATION


def test_an_image_that_is_no_item_is_left_to_whoever_decodes_it():
    broken = Raw(json.dumps({ORIGIN: {"S": TEXT}, "n": 1}).encode())
    assert read_origin(image(), broken) == WriteOrigin("handler", 3)


def test_a_mark_inside_other_data_counts_for_nothing():
    nested = {"M": {ORIGIN: {"S": TEXT}}}
    assert read_origin(None, image(nested=nested, text={"S": f'"{ORIGIN}"'})) is APPLICATION
    number = Raw(json.dumps({"pk": {"S": "A"}, ORIGIN: {"N": "1"}}).encode())
    assert read_origin(None, number) is APPLICATION
