"""Repos, one statement of its README at a time, and under traffic."""

from datetime import UTC, datetime

import pytest

from handlers.repos.entities import Issue, Repo, Star
from handlers.repos.handlers import SHAPE, IssueCount, StarCount, app
from handlers.repos.traffic import Traffic
from streamkit.testing import trial
from tests.seeds import seeds

KITE = {"owner": "ann", "name": "kite"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def site(harness_of):
    return harness_of(app, shape=SHAPE)


def stars_of(site):
    return site.get(StarCount.key(**KITE)).stars


@pytest.mark.parametrize("seed", seeds(4))
def test_the_counts_are_what_stars_and_issues_come_to(seed):
    ran = trial(app, Traffic(), shape=SHAPE, seed=seed)
    assert all(comparison.compared for comparison in ran.comparisons)


def test_a_user_who_stars_twice_counts_once(site):
    site.put(Star(**KITE, user="bob", at=NOON), Star(**KITE, user="zoe", at=NOON))
    site.settle()
    site.put(Star(**KITE, user="bob", at=datetime.now(UTC)))
    site.settle()
    assert stars_of(site) == 2
    site.delete(Star.key(**KITE, user="bob"))
    site.settle()
    assert stars_of(site) == 1


def test_repositories_of_one_name_are_counted_apart(site):
    site.put(Star(**KITE, user="zoe", at=NOON), Star(owner="bob", name="kite", user="zoe", at=NOON))
    site.settle()
    assert stars_of(site) == 1


def test_closing_moves_an_issue_from_one_count_to_the_other(site):
    issue = Issue(**KITE, number=1, title="It breaks")
    site.put(issue, Issue(**KITE, number=2, title="So does this"))
    site.settle()
    site.put(issue.model_copy(update={"state": "closed"}))
    site.settle()
    assert site.get(IssueCount.key(**KITE)) == IssueCount(**KITE, open=1, closed=1)
    site.put(issue)
    site.delete(Issue.key(**KITE, number=2))
    site.settle()
    assert site.get(IssueCount.key(**KITE)) == IssueCount(**KITE, open=1, closed=0)


def test_issues_sort_by_number_and_the_latest_come_first(site):
    site.put(*(Issue(**KITE, number=n, title="It breaks") for n in (9, 100, 11)))
    latest = site.query(Issue.query(**KITE).reverse())
    assert [issue.number for issue in latest] == [100, 11, 9]
    assert Issue.key(**KITE, number=9).sk == "ISSUE#00000009"


def test_a_page_about_a_repository_is_one_read(site):
    site.put(Repo(**KITE), Star(**KITE, user="bob", at=NOON))
    site.settle()
    keys = [Repo.key(**KITE), StarCount.key(**KITE), IssueCount.key(**KITE)]
    calls = len(site.world.calls)
    found = site._run(site.table.batch_get(keys))
    assert [call.operation for call in site.world.calls[calls:]].count("BatchGetItem") == 1
    assert found[StarCount.key(**KITE)].stars == 1
    assert keys[2] not in found  # nobody has opened an issue
