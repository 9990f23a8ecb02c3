"""A origin counts only where a write of this app's handlers has just put it."""

import json

import pytest
from msgspec import Raw

from streamkit.model.origin import APPLICATION, ORIGIN, WriteOrigin, read_origin, written_by

TEXT = WriteOrigin("handler", 3).text("copy", "app/17")


def image(origin=None, **attributes):
    item = {"pk": {"S": "A"}} | attributes
    if origin is not None:
        item[ORIGIN] = {"S": origin}
    return Raw(json.dumps(item).encode())


def test_a_new_origin_says_who_wrote_and_how_many_handlers_came_before():
    assert read_origin(image(n={"N": "1"}), image(TEXT, n={"N": "2"})) == WriteOrigin("handler", 3)
    assert read_origin(None, image(TEXT)) == WriteOrigin("handler", 3)
    other = WriteOrigin("migration", 0).text("0003", "x")
    assert read_origin(image(TEXT, n={"N": "1"}), image(other)) == WriteOrigin("migration", 0)


def test_an_update_by_the_application_leaves_the_origin_and_is_its_own():
    assert read_origin(image(TEXT, n={"N": "1"}), image(TEXT, n={"N": "2"})) is APPLICATION


def test_a_put_by_the_application_and_a_deletion_carry_no_origin():
    assert read_origin(image(TEXT), image()) is APPLICATION
    assert read_origin(image(TEXT), None) is APPLICATION


def test_a_write_that_changes_nothing_but_the_origin_is_no_change():
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
def test_what_is_no_origin_of_ours_counts_for_nothing(text):
    assert read_origin(None, image(text)) is APPLICATION


def test_a_contribution_of_zero_to_a_group_that_may_be_deleted_is_a_change():
    old, new = (image(TEXT + one, _sk_last={"S": one}, n={"N": "0"}) for one in "ab")
    assert read_origin(old, new) == WriteOrigin("handler", 3)


def test_an_item_says_which_handler_wrote_it_whether_or_not_the_write_was_traced():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traced = WriteOrigin("handler", 3, trace).text("copy", "app/17")
    for text in (TEXT, traced):
        assert written_by({ORIGIN: {"S": text}}) == ("copy", 3)
    assert read_origin(None, image(traced)) == WriteOrigin("handler", 3, trace)


@pytest.mark.parametrize("text", ["a:b:c:d", "handler:x:1:h", "1:2"])
def test_an_item_with_another_text_there_was_written_by_no_handler(text):
    assert written_by({ORIGIN: {"S": text}}) == written_by({}) == (None, 0)


def test_an_image_that_is_no_item_is_left_to_whoever_decodes_it():
    broken = Raw(json.dumps({ORIGIN: {"S": TEXT}, "n": 1}).encode())
    assert read_origin(image(), broken) == WriteOrigin("handler", 3)


def test_an_origin_inside_other_data_counts_for_nothing():
    nested = {"M": {ORIGIN: {"S": TEXT}}}
    assert read_origin(None, image(nested=nested, text={"S": f'"{ORIGIN}"'})) is APPLICATION
    number = Raw(json.dumps({"pk": {"S": "A"}, ORIGIN: {"N": "1"}}).encode())
    assert read_origin(None, number) is APPLICATION
