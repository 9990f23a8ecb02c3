"""New code leaves out a field with a default: old code has that value, so both sides agree on it."""

import anyio
import pytest

from streamkit import App, Entity
from tests.simulation.test_migration_made_meanwhile import texts
from tests.simulation.test_migration_old_writers import play


class OldPage(Entity, pk="PAGE#{page}", sk="OLD"):
    page: str
    title: str = ""
    lang: str = "en"
    visits: int = 0


class Page(Entity, pk="PAGE#{page}", sk="NEW"):
    page: str
    title: str = ""
    lang: str = "en"
    hits: int = 0


def moved(page: OldPage) -> Page:
    return Page(**page.model_dump(exclude={"visits"}), hits=page.visits)


def moved_back(page: Page) -> OldPage:
    return OldPage(**page.model_dump(exclude={"hits"}), visits=page.hits)


def rekey():
    app = App("site", table="Site", entities=[OldPage, Page])
    counted = {"hits": "visits"}
    app.migration("0001", OldPage, mode="rekey", reverse=moved_back, counters=counted)(moved)
    return app


OLD, NEW = OldPage(page="1"), Page(page="1")


async def put_without_defaults(site):
    item = {**NEW.item_key.wire(site.schema), "page": {"S": "1"}, "title": {"S": "by new code"}}
    await site.aws.dynamodb.put_item(TableName="Site", Item=item)


async def adds(site):
    await site.update(OLD, "ADD visits :v", {"N": "2"})


async def puts_anew(site):
    await site.put(OldPage(page="1", title="by old code", lang="de", visits=0))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (adds, {"title": "by new code", "lang": None, "hits": "2"}),
        (puts_anew, {"title": "by old code", "lang": "de", "hits": None}),
    ],
)
def test_what_old_code_writes_after_new_code_has_left_out_a_default_is_carried(write, said):
    async def then(site):
        assert (await site.get(OLD))["visits"] == {"N": "0"}
        await site.meanwhile(write, following=True)
        assert await texts(site) == []
        found = await site.get(NEW)
        assert {n: next(iter(found.get(n, {"": None}).values())) for n in said} == said

    items = [OldPage(page="1", lang="fr", visits=3)]
    play(rekey(), items, put_without_defaults, then, following=True)


def test_a_default_that_both_write_at_once_is_a_conflict():
    async def write(site):
        await put_without_defaults(site)
        await site.put(OldPage(page="1", lang="de", visits=3))

    async def then(site):
        await anyio.sleep(1)
        (text,) = await texts(site)
        assert "lang" in text

    play(rekey(), [OldPage(page="1", lang="fr", visits=3)], write, then, following=True)
