"""docs/testing.md: its tests pass, what it prints is printed, and its planted bug is found."""

import re

import pytest

from streamkit.testing import Different, UnexpectedlyParked, trial
from tests.pages import examples, module_of

FIRST = examples("README.md")[0]
PAGE = examples("docs/testing.md")
TOLD = examples("docs/testing.md", "text")
FAILING = "test_likes_by_hand_are_exact_whatever_happens"


@pytest.fixture(scope="module")
def page():
    module_of(FIRST, name="deals")
    return module_of(*PAGE)


def named_tests():
    return re.findall(r"def (test_\w+)\(harness_of\)", "\n".join(PAGE))


@pytest.mark.parametrize("name", named_tests())
def test_each_test_of_the_page_that_uses_a_harness_passes(page, harness_of, name):
    page[name](harness_of)


SUMMARY = r"seed \d: 150 acts, 150 writes; met crash \d+, roll \d+, split \d+\n"
SAME = SUMMARY + r"BrandLikes: 3 compared, 0 differ\nnothing is parked\n?"
DIFFERS = (
    r"\d differences\n(Count: COUNT#[abc]: found brand='([abc])', likes=\d+,"
    r" expected brand='\2', likes=\d+\n)+" + SUMMARY + r"Count: 3 compared, \d differ\n"
    r"nothing is parked\n?"
)
"""How a run goes on changes with each call that the worker makes; its form does not."""


def test_what_a_trial_prints_has_the_form_that_the_page_shows(page):
    ran = trial(page["app"], page["Likes"](), seed=1)
    assert re.fullmatch(SAME, str(ran))
    assert any(re.fullmatch(SAME, text) for text in TOLD)


def test_the_planted_bug_is_found_by_the_trial_as_the_page_shows(page):
    with pytest.raises(Different) as found:
        page[FAILING]()
    assert re.fullmatch(DIFFERS, str(found.value)), str(found.value)
    assert any(re.fullmatch(f"Different: {DIFFERS}", text) for text in TOLD)


def test_without_its_bug_the_planted_handler_passes_the_trial(page):
    blocks = [block.replace(", check=False)", ")") for block in PAGE]
    assert blocks != PAGE
    module_of(*blocks)[FAILING]()


def test_a_parked_change_that_no_test_expects_is_told_as_the_page_shows(page, harness_of):
    harness = harness_of(page["shop"])
    harness.put(page["ORDER"].model_copy(update={"total": 0}))
    harness.settle()
    harness.update(page["ORDER"].item_key, status="SHIPPED")
    with pytest.raises(UnexpectedlyParked) as told:
        harness.settle()
    shown = next(text for text in TOLD if text.startswith("UnexpectedlyParked"))
    shown = re.sub(r"line \d+|py:\d+|\"shop.py\"|shop|    share = .*\n", "", shown).rstrip("\n")
    said = re.sub(r"line \d+|example:\d+|\"page_example\"|page_", "", str(told.value))
    assert f"UnexpectedlyParked: {said}".split() == shown.replace("at . in", "at  in").split()
