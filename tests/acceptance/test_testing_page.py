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


def test_what_a_trial_prints_is_what_the_page_shows(page):
    ran = trial(page["app"], page["Likes"](), seed=1)
    assert str(ran) == next(text for text in TOLD if "BrandLikes" in text).rstrip("\n")


def test_the_planted_bug_is_found_by_the_trial_as_the_page_shows(page):
    with pytest.raises(Different) as found:
        page[FAILING]()
    shown = next(text for text in TOLD if text.startswith("Different")).rstrip("\n")
    assert f"Different: {found.value}" == shown


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
