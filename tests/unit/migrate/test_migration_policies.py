"""How a migration says what becomes of what both sides write, and what it refuses."""

from decimal import Decimal

import pytest

from streamkit import App, Entity
from streamkit.errors import DeclarationError
from streamkit.kinds import migration_function
from streamkit.migrate.families.settlement import (
    THERE,
    FamilySide,
    compare,
    counter,
    digest,
    taken_up,
)
from streamkit.migrate.items.counters import Counters, added
from streamkit.migrate.items.rewrites import TransformError


class OldPage(Entity, pk="PAGE#{page}", sk="PAGE"):
    page: str
    title: str = ""
    views: int = 0


class Page(Entity, pk="SITE#{page}", sk="PAGE"):
    page: str
    title: str = ""
    views: int = 0


class HitPage(Entity, pk="HIT#{page}", sk="PAGE"):
    page: str
    title: str = ""
    hits: Decimal = Decimal(0)


class HitCount(Entity, pk="COUNT#{page}", sk="PAGE"):
    page: str
    views: int = 0


def moved(page: OldPage) -> Page:
    return Page(**page.model_dump())


def renamed(page: OldPage) -> HitPage:
    return HitPage(page=page.page, title=page.title, hits=Decimal(page.views))


def both(page: OldPage) -> list[Page | HitCount]:
    return []


def nameless(page: OldPage):
    return Page(**page.model_dump())


def declared(function=moved, *, mode="rekey", **options):
    app = App("site", table="Site", entities=[OldPage, Page, HitPage])
    app.migration("0001", OldPage, mode=mode, **options)(function)
    return app.migrations["0001"]


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (moved, {"settle": "whole"}, "settle='whole': field or item"),
        (moved, {"mode": "derive", "settle": "item"}, "are for mode='rekey', 'split' or 'merge'"),
        (moved, {"mode": "derive", "counters": ["views"]}, "are for mode='rekey'"),
        (nameless, {"counters": ["views"]}, "its return annotation says which entity it makes"),
        (moved, {"counters": ["clicks"]}, "counters= names 'clicks', and Page has no such field"),
        (moved, {"counters": "title"}, "Page.title is no number: annotate it as int or Decimal"),
        (moved, {"counters": ["page"]}, "it is in the key of Page"),
        (both, {"mode": "split", "counters": "views"}, "have that field: a counter is in one"),
        (renamed, {"counters": ["hits"]}, "say counters={'hits': 'its old name'}"),
    ],
)
def test_what_cannot_be_settled_so_is_refused_where_it_is_declared(function, options, says):
    with pytest.raises(DeclarationError) as error:
        declared(function, **options)
    assert says in str(error.value)


def test_one_counter_is_named_alone_and_a_renamed_one_with_its_old_name():
    assert declared(counters="views").counters == {"views": "views"}
    assert declared(renamed, counters={"hits": "views"}).counters == {"hits": "views"}


def test_a_migration_keeps_its_digest_and_a_policy_changes_it():
    assert declared().digest == declared(settle="field", counters=()).digest
    digests = {declared(**options).digest for options in ({}, {"settle": "item"})}
    digests |= {declared(counters="views").digest, declared(counters="views", settle="item").digest}
    assert len(digests) == 4


def test_a_migration_without_a_policy_has_the_digest_of_before(monkeypatch):
    monkeypatch.setattr(migration_function, "_digest", lambda *given: repr(given[2]))
    assert declared().digest == "('0001', 'rekey', None, 'report', None)"


def test_a_policy_is_told_in_words():
    assert declared().policy == "by field"
    assert declared(settle="item", counters="views").policy == "by item, counters views"
    assert declared(mode="derive").policy == ""


def test_a_function_that_makes_another_number_of_a_counter_is_told_so():
    counters = Counters(declared(renamed, counters={"hits": "views"}))
    counters.require_carried([{"views": {"N": "7"}}], [{"hits": {"N": "7.0"}}])
    counters.require_carried([{}], [{"hits": {"N": "0"}}])
    with pytest.raises(TransformError, match="counter hits has to be the old item's views"):
        counters.require_carried([{"views": {"N": "7"}}], [{"hits": {"N": "8"}}])


def side(there="+", **fields):
    return {("p", THERE): there} | {
        ("p", n): counter(v) if isinstance(v, int | Decimal) else digest(v)
        for n, v in fields.items()
    }


VIEWS = ("p", "views")


@pytest.mark.parametrize(
    ("base", "old", "new", "total"),
    [
        (5, 7, 6, 8),
        (5, 6, 6, 7),
        (5, 3, 9, 7),
        (None, 1, 1, 2),
        (Decimal("0.1"), Decimal("0.3"), Decimal("0.4"), Decimal("0.6")),
        (10**37, 10**37 + 1, 10**37 + 2, 10**37 + 3),
    ],
)
def test_differences_add_up_exactly(base, old, new, total):
    base, old, new = (side(**({} if v is None else {"views": v})) for v in (base, old, new))
    ours, theirs = FamilySide(old, base), FamilySide(new, base)
    settled = compare(ours, theirs)
    assert (settled.to_new, settled.to_old, settled.clash) == ({VIEWS}, {VIEWS}, frozenset())
    assert added({"N": new[VIEWS][1:]}, settled.added[VIEWS]) == {"N": f"{total}"}


def test_a_base_takes_up_only_what_was_carried_of_a_counter():
    ours, theirs = (FamilySide(side(views=v), side(views=5)) for v in (7, 6))
    settled = compare(ours, theirs, mirrors=False)
    base = taken_up(ours, theirs, settled, "")
    assert base[VIEWS] == counter(7)
    deleted = FamilySide({}, side(views=7), {"p"})
    after = compare(deleted, FamilySide(side(views=8), base), mirrors=False)
    assert VIEWS in after.clash  # old code has not seen what new code has added


def test_what_is_written_at_a_stub_is_added_to_what_the_stub_stands_for():
    counters = Counters(declared(renamed, counters={"hits": "views"}))
    said = {"views": {"N": "1"}, "title": {"S": "b"}}
    seen = counters.on_top({"views": {"N": "7"}, "title": {"S": "a"}}, said, new=False)
    assert seen == {"views": {"N": "8"}, "title": {"S": "b"}}
    assert counters.on_top({"hits": {"N": "7"}}, {"hits": {"N": "2"}}, new=True)["hits"]["N"] == "9"


def test_old_code_has_not_seen_a_whole_new_item_that_a_person_has_decided_for():
    base = side(title="a")
    ours, theirs = (FamilySide(side(title=v), base) for v in "bc")
    settled = compare(ours, theirs, mirrors=False, take="new", settle="item")
    assert taken_up(ours, theirs, settled, "new") == base
    by_field = compare(ours, theirs, mirrors=False, take="new")
    assert taken_up(ours, theirs, by_field, "new") == side(title="c")


def test_old_code_has_seen_what_was_decided_about_an_item_that_it_has_put_anew():
    base = side(title="a", text="x")
    ours = FamilySide(side(title="a", text="y"), base, {"p"})  # it writes the title, too
    theirs = FamilySide(side(title="c", text="x"), base)
    settled = compare(ours, theirs, mirrors=False, take="new")
    assert taken_up(ours, theirs, settled, "new")["p", "title"] == digest("c")


def test_of_a_whole_item_a_stub_gives_only_what_was_written_at_it():
    base = side(title="a", text="x")
    theirs = FamilySide(side(title="a", text="z"), base)
    for stub, fields in ((True, {"title"}), (False, {"title", "text"})):
        ours = FamilySide(side(title="b", text="x"), base, stub=stub)
        settled = compare(ours, theirs, take="old", settle="item")
        assert {name for _, name in settled.to_new} == fields
        assert not settled.to_old


@pytest.mark.parametrize("anew", [frozenset(), {"p"}])
def test_a_counter_that_was_removed_is_in_conflict_with_one_that_was_added_to(anew):
    ours = FamilySide(side() if not anew else {}, side(views=5), anew)
    settled = compare(ours, FamilySide(side(views=6), side(views=5)))
    assert VIEWS in settled.clash


def test_equal_counters_that_were_put_anew_do_not_agree():
    ours = FamilySide(side(views=6), side(views=5), {"p"})
    settled = compare(ours, FamilySide(side(views=6), side(views=5)))
    assert settled.clash == {VIEWS}


def test_a_side_is_taken_whole_and_what_both_have_counted_is_added_all_the_same():
    base = side(start=1, title="a", version="v1", views=5)
    ours = FamilySide({**base, ("p", "title"): digest("b"), VIEWS: counter(6)}, base)
    theirs = FamilySide({**base, ("p", "version"): digest("v2"), VIEWS: counter(6)}, base)
    assert compare(ours, theirs).clash == frozenset()
    both = {("p", "title"), ("p", "version")}
    assert compare(ours, theirs, settle="item").clash == both
    kept = compare(ours, theirs, settle="item", take="old")
    assert (kept.to_new, kept.to_old) == (both | {VIEWS}, {VIEWS})
    counted = FamilySide({**base, VIEWS: counter(9)}, base)
    alone = compare(counted, theirs, settle="item")
    assert (alone.clash, alone.to_old) == (frozenset(), {("p", "version"), VIEWS})
