"""Migrations that are done by other means, done everywhere, done again, or needed by other code."""

import importlib
import itertools
import sys
from dataclasses import replace

import anyio
import pytest

from streamkit import App, Entity, Inserted, Item, Set
from streamkit.aws_lambda.environment import open_environment
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.migrate.book.discovery import discover
from streamkit.migrate.book.order import order_of
from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.required import (
    command_to_start,
    missing_migrations,
    require_migrations,
)
from streamkit.migrate.operate.scaffold import next_number
from streamkit.migrate.operate.squashing import squash, stamp
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.operate.inspection import inspect_app
from tests.unit.migrate.test_migration_order import (
    Order,
    Parcel,
    User,
    at_table,
    labelled,
    shown,
    unlabelled,
    unshown,
    user,
)


class Label(Entity, pk="LABEL#{number}", sk="LABEL"):
    number: int


def standing(found):
    return {one.id: one.standing for one in found}


async def listed(site):
    return standing(await commands.list_migrations(site.app, site.aws))


async def put(site, number, **fields):
    item = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}, "number": {"N": f"{number}"}}
    await site.aws.dynamodb.put_item(TableName="Shop", Item=item | fields)


def labels(site):
    return sorted(item["label"]["S"] for item in site.world.items("Shop") if "label" in item)


# -- stamp -----------------------------------------------------------------------------------------


def test_what_is_done_by_other_means_is_stamped_with_a_reason_and_reads_no_item():
    async def test(site):
        state = await stamp(site.app, site.aws, "0001", "by a script")
        assert (state.phase, state.audit[-1].what) == ("done", "stamp: by a script")
        assert (await listed(site))["0001"] == "applied"
        assert labels(site) == []
        found = await verify_migration(
            site.app, site.aws, site.app.migrations["0001"], clock=site.world.clock
        )
        assert (found.ok, len(found.different)) == (False, 3)  # the script did not do it
        with pytest.raises(AlreadyBegun):
            await stamp(site.app, site.aws, "0001", "again")

    at_table(test)


def test_what_was_stamped_is_rolled_back_item_by_item():
    async def test(site):
        for number in range(3):
            await put(site, number, label={"S": "by a script"})
        await anyio.sleep(1200)  # what is in the stream is old, and left to the pass
        await stamp(site.app, site.aws, "0001", "by a script")
        await steps.rollback(site.app, site.aws, "0001", clock=site.world.clock)
        await site.run("0001")
        assert await listed(site) == {"0001": "rolled back", "0002": "pending", "0003": "pending"}
        assert labels(site) == []

    at_table(test)


def test_what_is_stamped_after_a_run_for_chosen_items_keeps_no_list():
    async def test(site):
        book = await open_book(site.app, site.aws)

        def chosen(state):
            facts = {"keys_from": "keys.jsonl", "keys_tag": "1", "since": 9.0, "segments": 8}
            return replace(state, phase="rolled back", **facts)

        await book.change("0001", chosen)
        state = await stamp(site.app, site.aws, "0001", "by a script")
        assert (state.keys_from, state.keys_tag, state.since, state.segments) == ("", "", 0.0, 8)

    at_table(test)


def test_nothing_is_stamped_out_of_order_or_while_it_runs():
    async def test(site):
        with pytest.raises(ConfigurationError, match=r"0001.*comes first"):
            await stamp(site.app, site.aws, "0003", "it is there")
        await site.begin("0001")
        with pytest.raises(AlreadyBegun):
            await stamp(site.app, site.aws, "0001", "it is there")

    at_table(test)


# -- repeat ----------------------------------------------------------------------------------------


def labelled_otherwise(item: Item) -> Set[Order]:
    return Set(label=f"no. {item['number']}")


def label_of(order: Order) -> Label:
    return Label(number=order.number)


def repeating(function=labelled, **options):
    app = App("shop", table="Shop")
    app.migration("labels", Order, repeat=True, **options)(function)
    return app


@pytest.mark.parametrize("mode", ["in_place", "touch"])
def test_what_may_be_repeated_is_begun_again_and_finds_what_came_since(mode):
    async def test(site):
        await site.apply("labels")
        await put(site, 7)
        found = await verify_migration(
            site.app, site.aws, site.app.migrations["labels"], clock=site.world.clock
        )
        assert not found.ok
        assert (await listed(site))["labels"] == "applied"
        await site.apply("labels")
        assert labels(site) == ["0", "1", "2", "7"]

    at_table(test, repeating(mode=mode))


def test_what_derives_items_may_be_repeated():
    async def test(site):
        await site.apply("labels")
        await put(site, 7)
        await site.apply("labels")
        keys = [item["PK"]["S"] for item in site.world.items("Shop")]
        assert sorted(key for key in keys if key.startswith("LABEL")) == [
            f"LABEL#{number}" for number in (0, 1, 2, 7)
        ]

    at_table(test, repeating(label_of, mode="derive"))


def test_what_may_be_repeated_is_pending_again_when_its_definition_changes():
    async def test(site):
        await site.apply("labels")
        site.app = repeating(labelled_otherwise)
        assert await listed(site) == {"labels": "pending"}
        await site.apply("labels")
        assert await listed(site) == {"labels": "applied"}
        assert labels(site) == ["no. 0", "no. 1", "no. 2"]

    at_table(test, repeating())


def test_later_migrations_begin_after_a_repeated_one_and_it_runs_again_after_them():
    async def test(site):
        await site.apply("labels")
        site.app.migration("0002", Order, reverse=unshown)(shown)
        await site.apply("0002")
        await site.apply("labels")
        await site.roll_back("0002")

    at_table(test, repeating())


def test_a_repeated_migration_waits_while_a_later_one_is_under_way():
    app = App("shop", table="Shop")
    app.migration("0001", Order, repeat=True)(labelled)
    app.migration("0003", Order)(shown)

    async def test(site):
        await site.apply("0001")
        await site.begin("0003")
        with pytest.raises(ConfigurationError, match=r"0003 \(capturing\).*begun before"):
            await site.begin("0001")

    at_table(test, app)


def test_what_moves_items_is_not_repeated():
    app = App("shop", table="Shop")
    with pytest.raises(DeclarationError, match="repeat= is for"):
        app.migration("0001", Order, mode="rekey", repeat=True)(moved)


# -- what code needs -------------------------------------------------------------------------------


def moved(order: Order) -> Parcel:
    return Parcel(number=order.number)


def needing(*required):
    app = App("shop", table="Shop", require_migrations=required)
    app.migration("0001", Order, reverse=unlabelled)(labelled)
    app.migration("0002", User)(user)
    app.migration("0003", Order, mode="rekey", after=["all_users"])(moved)
    app.migration("all_users", User)(user)
    return app


def test_code_needs_all_lower_numbers_and_what_they_need():
    async def test(site):
        assert await missing_migrations(App("shop", table="Shop"), site.aws) is None
        missing = (await missing_migrations(site.app, site.aws)).text
        assert "0001 (new), 0002 (new), 0003 (new), all_users (new)" in missing
        assert "`streamkit migrate apply` brings what is pending" in missing
        unknown = (await missing_migrations(needing("0077"), site.aws)).text
        assert "no file of 0077: check require_migrations=" in unknown
        with pytest.raises(ConfigurationError, match="has a name that is empty, perhaps from a"):
            await missing_migrations(needing(""), site.aws)
        await site.apply("0001")
        await site.apply("0002")
        await site.apply("all_users")
        await site.begin("0003")
        with pytest.raises(ConfigurationError, match=r"has not had 0003 \(capturing\)"):
            await require_migrations(site.app, site.aws)
        await site.run("0003")  # until it is `ready`
        await require_migrations(site.app, site.aws)
        await site.roll_back("0003")
        with pytest.raises(ConfigurationError, match=r"has not had 0003 \(dropping\)"):
            await require_migrations(site.app, site.aws)
        missing = (await missing_migrations(site.app, site.aws)).text
        assert "`streamkit migrate begin --again` what was rolled back (0003)" in missing

    at_table(test, needing("0003"))


def test_code_waits_for_a_migration_whose_files_it_has_not():
    async def test(site):
        assert "0009 (new)" in (await missing_migrations(site.app, site.aws)).text

    at_table(test, App("shop", table="Shop", require_migrations="0009"))


def test_the_command_without_which_code_refuses_to_start_is_named():
    async def test(site):
        async def command(*required):
            return await command_to_start(needing(*required), site.aws)

        assert await command() == ()
        assert await command("0003") == ("migrate apply",)
        assert await command("0077") == await command("") == ("check",)
        await site.begin("0001")
        await steps.pause(site.app, site.aws, "0001")
        assert await command("0001") == ("migrate resume", "0001")
        assert await command("0001", "0077") == ("check",)
        await steps.resume(site.app, site.aws, "0001")
        await site.run("0001")
        assert await command("0001") == ()
        await steps.rollback(site.app, site.aws, "0001", clock=site.world.clock)
        assert await command("0001") == ("migrate join", "0001")
        await site.run("0001")
        assert await command("0001") == ("migrate begin", "0001", "--again")

    at_table(test, needing("0003"))


def test_what_is_repeated_was_done_while_it_runs_again():
    app = App("shop", table="Shop", require_migrations="labels")
    app.migration("labels", Order, repeat=True)(labelled)

    async def test(site):
        await site.begin("labels")
        assert "labels (capturing)" in (await missing_migrations(site.app, site.aws)).text
        await site.run("labels")
        await site.begin("labels")
        assert await missing_migrations(site.app, site.aws) is None

    at_table(test, app)


def test_functions_do_not_start_and_check_says_why_without_a_migration():
    app = needing("0001")
    app.on(lambda_handler)
    listener = app.listener("late")
    listener.on(lambda_handler)

    async def test(site):
        clients = {"connect_with": site.world.clients, "clock": site.world.clock}
        for one in (app, listener):
            with pytest.raises(ConfigurationError, match=r"require_migrations= names 0001"):
                async with open_environment(one, **clients):
                    pass
        found = await inspect_app(app, site.aws)
        assert [one.text for one in found.findings if "require_migrations" in one.text]
        assert not found.ok
        await site.apply("0001")
        async with open_environment(app, **clients):
            pass
        assert (await inspect_app(app, site.aws)).ok

    at_table(test, app)


def lambda_handler(change: Inserted[Order]) -> None:
    """Do nothing."""


# -- squash ----------------------------------------------------------------------------------------

MIGRATION = """
from {module} import Order, app
from streamkit import Set


@app.migration("{number}", Order{more})
def one(label: str | None = None) -> Set[Order] | None:
    return None
"""
APP = """
from streamkit import App
from tests.unit.migrate.test_migration_order import Order

app = App("shop", table="Shop")
"""
_names = (f"squashed_shop_{number}" for number in itertools.count())


class Files:
    """A module with an app, and files of migrations beside it, in releases that follow each other."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._monkeypatch = folder, monkeypatch
        self.name = next(_names)
        (folder / f"{self.name}.py").write_text(APP)
        (folder / "migrations").mkdir()
        monkeypatch.syspath_prepend(str(folder))

    def write(self, file, number=None, more=""):
        text = MIGRATION.format(module=self.name, number=number or file[:4], more=more)
        (self.folder / "migrations" / file).write_text(text)

    @property
    def files(self):
        return sorted(path.name for path in (self.folder / "migrations").glob("*.py"))

    def release(self):
        """Run the files as they are now, in a process of their own as it were."""
        for loaded in [one for one in sys.modules if one == self.name or "_migrations_" in one]:
            del sys.modules[loaded]
        app = importlib.import_module(self.name).app
        discover(app)
        return app


@pytest.fixture
def files(tmp_path, monkeypatch):
    made = Files(tmp_path, monkeypatch)
    for file in ("0001_one.py", "0002_two.py", "0003_three.py"):
        made.write(file)
    yield made
    for loaded in [one for one in sys.modules if one == made.name or "_migrations_" in one]:
        del sys.modules[loaded]


async def squashed(site, files, last):
    site.app = files.release()
    return await squash(site.app, site.aws, f"{files.name}:app", last)


def test_migrations_that_are_done_become_one_file_with_their_numbers(files):
    async def test(site):
        for number in ("0001", "0002"):
            await site.apply(number)
        await squashed(site, files, "0002")
        assert files.files == ["0002_squashed.py", "0003_three.py"]
        site.app = files.release()
        assert list(site.app.migrations) == ["0003"]
        assert next_number(site.app) == "0004"
        assert await listed(site) == {"0003": "pending"}
        assert order_of(site.app).until("0002") == ()  # a pipeline may still say --to 0002
        with pytest.raises(ConfigurationError, match="0002 was squashed before"):
            await squashed(site, files, "0002")
        files.write("0004_four.py", more=', after=["0002"]')
        site.app = files.release()
        for number in ("0003", "0004"):
            await site.apply(number)
        await squashed(site, files, "0004")
        assert files.files == ["0004_squashed.py"]
        site.app = files.release()
        assert site.app.done_everywhere == ("0001", "0002", "0003", "0004")
        assert await listed(site) == {}

    at_table(test, files.release())


def test_code_that_needs_what_was_squashed_is_told_of_a_table_that_has_not_had_it():
    async def test(site):
        site.app.squashed("0001")
        missing = await missing_migrations(site.app, site.aws)
        assert "not had 0001 (new); first 0001, whose code was squashed" in missing.text
        assert "streamkit migrate apply" not in missing.text
        assert "streamkit migrate stamp" in missing.text
        assert missing.command == ("check",)
        await stamp(site.app, site.aws, "0001", "the table is new")
        assert await missing_migrations(site.app, site.aws) is None

    at_table(test, App("shop", table="Shop", require_migrations="0001"))


def test_a_squash_leaves_other_files_whose_names_end_like_those_of_squashed_ones(files):
    files.write("0004_orders_squashed.py")

    async def test(site):
        await site.apply("0001")
        await squashed(site, files, "0001")
        await site.apply("0002")
        await squashed(site, files, "0002")
        assert files.files == ["0002_squashed.py", "0003_three.py", "0004_orders_squashed.py"]

    at_table(test, files.release())


def test_apps_that_share_a_folder_squash_each_its_own(files):
    module = files.folder / f"{files.name}.py"
    module.write_text(module.read_text() + 'other = App("other", table="Other")\n')
    text = f"from {files.name} import other\n\nother.squashed('0009')\n"
    (files.folder / "migrations" / "0009_squashed.py").write_text(text)

    async def test(site):
        assert list(site.app.migrations) == ["0001", "0002", "0003"]
        await site.apply("0001")
        await squashed(site, files, "0001")
        assert files.files[0] == "0001_squashed.py"
        assert "0009_squashed.py" in files.files
        assert list(files.release().migrations) == ["0002", "0003"]

    at_table(test, files.release())


def test_nothing_is_squashed_that_is_not_done_here_or_has_to_stay(files):
    async def test(site):
        await site.apply("0001")
        with pytest.raises(ConfigurationError, match="0002 is 'new' in Shop"):
            await squashed(site, files, "0002")
        await site.apply("0002")
        site.app = files.release()
        del site.app.migrations["0002"]
        site.app.migration("0002", Order)(labelled)
        with pytest.raises(ConfigurationError, match="in files of their own"):
            await squash(site.app, site.aws, f"{files.name}:app", "0002")
        with pytest.raises(ConfigurationError, match="name the last number"):
            await squash(site.app, site.aws, f"{files.name}:app", "labels")
        files.write("0001_one.py", more=", repeat=True")
        with pytest.raises(ConfigurationError, match="may be repeated"):
            await squashed(site, files, "0001")
        assert len(files.files) == 3

    at_table(test, files.release())


def test_a_table_that_has_not_had_what_was_squashed_is_noticed_until_it_is_stamped(files):
    async def elsewhere(site):
        await site.apply("0001")
        await squashed(site, files, "0001")

    at_table(elsewhere, files.release())

    async def test(site):
        assert await listed(site) == {"0001": "pending", "0002": "pending", "0003": "pending"}
        with pytest.raises(ConfigurationError, match=r"has not had migration 0001 \(new\)"):
            await site.begin("0002")
        await stamp(site.app, site.aws, "0001", "a new table")
        await site.begin("0002")

    at_table(test, files.release())
