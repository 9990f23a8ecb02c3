"""`streamkit migrate` from the outside: from an empty folder to a rollback, with people in between."""

import itertools
import json
import os
import signal
from contextlib import contextmanager

import pytest

from streamkit.migrate.book.overlap import QUIET_SECONDS

RIGHT = """
from shop import Order, app

from streamkit import Set


def back(status: str) -> Set[Order]:
    return Set(status=status.removeprefix("S-"))


@app.migration("0001", Order, reverse=back)
def prefixed(status: str) -> Set[Order] | None:
    if status == "BAD":
        raise ValueError(status)
    return None if status.startswith("S-") else Set(status=f"S-{status}")
"""
SIDEWAYS = """
from shop import Journal, Order, app


@app.migration("0001", Order, mode="derive")
def journals(order: Order) -> Journal:
    return Journal(number=1000 + order.number, lines=order.status)
"""


MARKED = """
from shop import Journal, app

from streamkit import Set


@app.migration("0003", Journal)
def marked(lines: str) -> Set[Journal] | None:
    return None
"""
MOVES = """
from shop import Order, app

from streamkit import Entity


class Parcel(Entity, pk="PARCEL#{number}", sk="PARCEL"):
    number: int
    status: str = "NEW"


def back(parcel: Parcel) -> Order:
    return Order(number=parcel.number, status=parcel.status)


@app.migration("0001", Order, mode="rekey", reverse=back)
def parcels(order: Order) -> Parcel:
    return Parcel(number=order.number, status=order.status)
"""


_SECONDS = itertools.count()


@pytest.fixture
def shop(shop):
    shop.hasten()
    shop.env["STREAMKIT_CHECKPOINT_INTERVAL"] = "0.5"
    return shop


def write(shop, text, name="0001_prefixed.py"):
    folder = shop.folder / "migrations"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    # Python knows by its size and second whether it has compiled a file already.
    second = path.stat().st_mtime + next(_SECONDS)
    os.utime(path, (second, second))


def status_of(shop, number):
    return shop.item(f"ORDER#{number}", "ORDER")["status"]["S"]


def apply(shop, *options):
    return shop.run("migrate", "apply", "shop:app", "0001", "--segments", "4", *options)


def join(shop):
    return shop.run("migrate", "join", "shop:app", "0001")


def test_a_migration_from_its_file_to_its_rollback(shop):
    for number in range(30):
        shop.put(number, "NEW")
    made = shop.run("migrate", "new", "shop:app", "nothing_yet", "--entity", "Order")
    assert made.returncode == 0, made.stderr
    path = shop.folder / "migrations" / "0001_nothing_yet.py"
    assert "status: str" in path.read_text()
    (pending,) = json.loads(shop.run("migrate", "check", "shop:app", "--json").stdout)
    assert (pending["standing"], pending["name"]) == ("pending", "nothing_yet")
    assert shop.run("migrate", "check", "shop:app").returncode == 5
    assert shop.run("migrate", "plan", "shop:app", "0001").returncode == 0
    path.unlink()

    write(shop, RIGHT)
    plan = json.loads(shop.run("migrate", "plan", "shop:app", "0001", "--json").stdout)
    assert plan["needing"] == {"value": 1.0, "error": 0.0}
    shown = shop.run("migrate", "plan", "shop:app", "0001", "--diff", "--sample", "100%")
    assert "+ status: 'S-NEW'" in shown.stdout
    assert "ORDER#" not in shown.stdout

    assert join(shop).returncode == 9
    begun = shop.run("migrate", "begin", "shop:app", "0001", "--max-wcu", "900")
    assert begun.returncode == 0, begun.stderr
    assert "WCU 900 a second; `streamkit migrate join` works on it" in begun.stdout
    assert shop.run("migrate", "begin", "shop:app", "0001").returncode == 4
    other = apply(shop, "--keys-from", 'table:{"pk": "ORDER#1"}')
    assert (other.returncode, "was begun for all items" in other.stderr) == (4, True)
    done = apply(shop)
    assert done.returncode == 0, done.stderr
    assert {status_of(shop, number) for number in range(30)} == {"S-NEW"}
    assert shop.run("migrate", "check", "shop:app").returncode == 0
    assert "0001 done" in shop.run("migrate", "status", "shop:app").stdout
    found = json.loads(shop.run("migrate", "verify", "shop:app", "0001", "--json").stdout)
    assert (found["ok"], found["matching"]) == (True, 30)
    shop.put(3, "NEW")
    assert shop.run("migrate", "verify", "shop:app", "0001").returncode == 5
    assert shop.run("migrate", "verify", "shop:app", "0001", "--repair").returncode == 0
    assert status_of(shop, 3) == "S-NEW"

    write(shop, RIGHT.replace("S-", "T-"))
    changed = shop.run("migrate", "check", "shop:app")
    assert (changed.returncode, "changed" in changed.stdout) == (5, True)
    assert "migration 0001 was begun with another definition; undo" in changed.stdout
    refused = apply(shop)
    assert (refused.returncode, "--accept-change" in refused.stderr) == (4, True)

    write(shop, RIGHT)
    back = shop.run("migrate", "rollback", "shop:app", "0001")
    assert back.returncode == 0, back.stderr
    assert {status_of(shop, number) for number in range(30)} == {"NEW"}, back.stdout
    assert join(shop).returncode == 0
    refused = apply(shop)
    assert (refused.returncode, "begin --again" in refused.stderr) == (4, True)
    assert status_of(shop, 1) == "NEW"
    history = shop.run("migrate", "history", "shop:app", "0001").stdout
    assert history.index("begin") < history.index("done") < history.index("rollback")
    assert history.split("\n")[0].split() == ["WHEN", "(UTC)", "BY", "WHAT"]


NUMBERED = """
from shop import Order, app

from streamkit import Set


@app.migration("{id}", Order{more})
def appended(status: str) -> Set[Order] | None:
    return None if "{mark}" in status else Set(status=status + "{mark}")
"""


def test_a_canary_looks_at_the_first_items_and_ends_until_a_person_resumes_it(shop):
    write(shop, RIGHT)
    for number in range(60):
        shop.put(number, "NEW")
    paused = apply(shop, "--first", "20", "--max-errors", "1%")
    assert (paused.returncode, "items were visited" in paused.stdout) == (8, True)
    assert shop.run("migrate", "limit", "shop:app", "0001", "--max-errors", "x").returncode == 2
    told = shop.run("migrate", "limit", "shop:app", "0001", "--max-errors", "0.1%")
    assert "at most 0.1% errors" in told.stdout
    assert shop.run("migrate", "resume", "shop:app", "0001").returncode == 0
    assert join(shop).returncode == 0
    assert status_count(shop) == 60


def checked(shop):
    return json.loads(shop.run("migrate", "check", "shop:app", "--json").stdout)


def numbered(shop, id_, mark, more=""):
    write(shop, NUMBERED.format(id=id_, mark=mark, more=more), f"{id_}_appended.py")


def test_all_that_is_pending_is_applied_in_order_and_what_code_needs_is_waited_for(shop):
    for number in range(5):
        shop.put(number, "NEW")
    for id_, mark, more in (("0001", "a", ""), ("0002", "b", ""), ("0003", "c", "")):
        numbered(shop, id_, mark, more)
    all_ = ("migrate", "apply", "shop:app", "--segments", "2")
    assert shop.run("migrate", "apply", "shop:app", "0001", "--to", "0002").returncode == 2
    done = shop.run(*all_, "--to", "0002")
    assert done.returncode == 0, done.stderr
    assert {status_of(shop, number) for number in range(5)} == {"NEWab"}
    check = ("migrate", "check", "shop:app", "--exit-code")
    assert [shop.run(*check, *to).returncode for to in (("--to", "0002"), ())] == [0, 5]

    source = shop.folder / "shop.py"
    source.write_text(source.read_text().replace("table=", 'require_migrations="0003", table=', 1))
    refused = shop.run("worker", "shop:app", "--until-idle")
    assert (refused.returncode, "has not had 0003 (new)" in refused.stderr) == (4, True)
    assert shop.run("check", "shop:app").returncode == 5
    assert shop.run("status", "shop:app").stdout.endswith(
        "next: streamkit migrate apply shop:app\n"
    )
    assert shop.run(*all_).returncode == 0
    assert "no migration is pending" in shop.run(*all_).stdout
    assert {status_of(shop, number) for number in range(5)} == {"NEWabc"}
    numbered(shop, "0002", "z")
    again = shop.run(*all_)
    assert (again.returncode, "0002 was begun with another definition" in again.stderr) == (0, True)
    numbered(shop, "0002", "b")
    assert "; did you mean 0002?" in shop.run("migrate", "plan", "shop:app", "2").stderr
    assert shop.run("worker", "shop:app", "--until-idle").returncode == 0

    squashed = shop.run("migrate", "squash", "shop:app", "--to", "0002")
    assert squashed.returncode == 0, squashed.stderr
    files = sorted(path.name for path in (shop.folder / "migrations").glob("*.py"))
    assert files == ["0002_squashed.py", "0003_appended.py"]
    assert shop.run(*check).returncode == 0
    write(shop, "from shop import app\n\napp.squashed('0009')\n", "0009_squashed.py")
    missed = shop.run(*all_)
    assert (missed.returncode, "0009 (new) is left out, whose code" in missed.stderr) == (7, True)
    assert "no migration is pending" not in missed.stdout


def test_what_waits_for_people_is_left_to_them_and_the_rest_is_applied(shop):
    write(shop, MOVES, "0001_parcels.py")
    numbered(shop, "0002", "b")
    write(shop, MARKED, "0003_marked.py")
    shop.put(1, "NEW")
    done = shop.run("migrate", "apply", "shop:app", "--segments", "2")
    assert (done.returncode, "0002 waits for 0001, which is ready" in done.stderr) == (7, True)
    standing = {one["id"]: one["phase"] for one in checked(shop)}
    assert standing == {"0001": "ready", "0002": "new", "0003": "done"}
    stamped = ("migrate", "stamp", "shop:app", "0002", "--reason", "by a script")
    assert shop.run(*stamped).returncode == 4
    assert shop.run("migrate", "rollback", "shop:app", "0001").returncode == 0
    assert shop.run(*stamped).returncode == 0
    assert shop.run("migrate", "check", "shop:app").returncode == 0


def test_a_release_without_the_file_of_a_migration_under_way_says_so(shop):
    write(shop, MOVES, "0001_parcels.py")
    shop.put(1, "NEW")
    assert apply(shop).returncode == 0
    path = shop.folder / "migrations" / "0001_parcels.py"
    path.unlink()
    said = "this release does not have its file: deploy the release that has it"
    one = ("migrate", "status", "shop:app", "0001")
    for asked in (one, one[:3], ("migrate", "check", "shop:app"), ("status", "shop:app")):
        told = shop.run(*asked)
        assert (told.returncode, said in told.stdout, "ready" in told.stdout) == (0, True, True)
    (found,) = checked(shop)
    assert (found["id"], found["standing"], found["phase"]) == ("0001", "no file", "ready")
    assert shop.run("migrate", "check", "shop:app", "--exit-code").returncode == 5
    assert shop.run("migrate", "status", "shop:app", "0002").returncode == 4
    assert shop.run("worker", "shop:app", "--until-idle").returncode == 0
    applied = shop.run("migrate", "apply", "shop:app")
    assert (applied.returncode, said in applied.stderr, applied.stdout) == (7, True, "")
    write(shop, MOVES, "0001_parcels.py")
    assert said not in shop.run("migrate", "status", "shop:app").stdout


def test_what_was_rolled_back_is_not_applied_and_a_command_for_it_does_not_exit_with_0(shop):
    write(shop, RIGHT)
    write(shop, MARKED, "0003_marked.py")
    shop.put(1, "NEW")
    assert apply(shop).returncode == 0
    assert shop.run("migrate", "rollback", "shop:app", "0001").returncode == 0
    again = apply(shop)
    assert (again.returncode, "begin --again" in again.stderr) == (4, True)
    assert join(shop).returncode == 0  # does what the table says
    all_ = ("migrate", "apply", "shop:app", "--segments", "2")
    for more, code in ((("--to", "0003"), 7), ((), 0)):
        done = shop.run(*all_, *more)
        assert (done.returncode, "0001 was rolled back" in done.stderr) == (code, True)
    assert [one["phase"] for one in checked(shop)] == ["rolled back", "done"]


def test_a_switch_that_another_operator_rolls_back_says_so_and_does_not_exit_with_0(shop):
    write(shop, MOVES)
    for number in range(12):
        shop.put(number, "NEW")
    assert apply(shop).returncode == 0
    assert shop.run("migrate", "switch", "shop:app", "0001", "--detach").returncode == 0
    paused = shop.run("migrate", "pause", "shop:app", "0001")
    assert paused.returncode == 0
    assert "works on it" not in paused.stdout
    arguments = ("migrate", "switch", "shop:app", "0001", "--stay")
    with shop.start(*arguments, STREAMKIT_LOG_LEVEL="info") as switching:
        switching.wait_for('"switching"')
        back = shop.run("migrate", "rollback", "shop:app", "0001", "--new-code", "none")
        assert back.returncode == 0, back.stderr
        switching.wait_for('"rolled back"')
        switching.signal(signal.SIGTERM)
        assert switching.exit_code() == 7
        assert any("gave the command `rollback --new-code none`" in one for one in switching.lines)


def test_a_draft_is_written_from_what_a_sample_of_the_table_lacks(shop):
    shop.put(1, "NEW")
    shop.dynamodb.update_item(
        TableName=shop.table,
        Key={"pk": {"S": "ORDER#1"}, "sk": {"S": "ORDER"}},
        UpdateExpression="REMOVE #s",
        ExpressionAttributeNames={"#s": "status"},
    )
    new = ("migrate", "new", "shop:app", "as_today", "--autogenerate", "--entity")
    made = shop.run(*new, "Order", "--sample", "100%")
    assert (made.returncode, "Order: 1 of 1 items: " in made.stdout) == (0, True), made.stderr
    assert "1 of 1 items" in (shop.folder / "migrations" / "0001_as_today.py").read_text()
    none = shop.run(*new, "Journal").stdout
    assert "no item of the sample differs" in none
    assert "looked at 1 items of yours, of 1 that were read" in none
    assert "the sample has no item of Journal" in none


def test_items_that_fail_wait_for_people(shop):
    write(shop, RIGHT)
    shop.put(1, "BAD")
    shop.put(2, "NEW")
    blocked = apply(shop)
    assert (blocked.returncode, "errors list" in blocked.stdout) == (7, True)
    shop.run("worker", "shop:app", "--until-idle")
    status = shop.run("status", "shop:app", "--no-stream").stdout
    assert "migration of 0001 is under way" in status
    assert "no migration, rebuild, move or rewind is under way" not in status
    (error,) = json.loads(
        shop.run("migrate", "errors", "list", "shop:app", "0001", "--json").stdout
    )
    assert (error["kind"], error["text"]) == ("transform", "ValueError")
    shown = shop.run("migrate", "errors", "show", "shop:app", "0001", error["id"])
    assert json.loads(shown.stdout)["key"]["pk"] == {"S": "ORDER#1"}
    assert json.loads(shown.stdout)["detail"] == "BAD"
    seen = [
        shop.run("migrate", "errors", "list", "shop:app", "0001", *more).stdout
        for more in ((), ("--details",), ("--kind", "check"))
    ]
    assert [("0001_prefixed.py:14" in one, "BAD" in one) for one in seen[:2]] == [
        (True, False),
        (True, True),
    ]
    assert "no item has failed" in seen[2]
    key = ("--key", '{"pk": "ORDER#1", "sk": "ORDER"}')
    assert (
        "0 items are right now, 1"
        in shop.run("migrate", "errors", "retry", "shop:app", "0001", *key).stdout
    )
    assert shop.run("migrate", "errors", "retry", "shop:app", "0001").returncode == 7
    assert "blocked" in shop.run("status", "shop:app", "--no-stream").stdout
    waive = ("migrate", "errors", "waive", "shop:app", "0001")
    assert shop.run(*waive, "--reason", "which?").returncode == 2
    assert shop.run(*waive, "--all", "--reason", "it is a test order").returncode == 0
    assert apply(shop).returncode == 7  # which decides nothing
    assert shop.run("migrate", "resume", "shop:app", "0001").returncode == 0
    assert join(shop).returncode == 0
    assert (status_of(shop, 1), status_of(shop, 2)) == ("BAD", "S-NEW")
    assert shop.run("migrate", "verify", "shop:app", "0001").returncode == 0


def test_errors_of_a_kind_or_an_item_that_does_not_exist_are_no_success(shop):
    write(shop, RIGHT)
    shop.put(1, "BAD")
    assert apply(shop).returncode == 7
    (error,) = shop.json("migrate", "errors", "list", "shop:app", "0001")
    none = ("--key", '{"pk": "ORDER#2", "sk": "ORDER"}')
    for command, more in (("list", ()), ("retry", ()), ("waive", ("--reason", "known"))):
        about = ("migrate", "errors", command, "shop:app", "0001", *more)
        wrong = shop.run(*about, "--kind", "nosuch")
        assert (wrong.returncode, "transform, check, taken" in wrong.stderr) == (2, True)
        if command == "list":
            continue
        for chosen, said in (
            (none, "1 of these items have not failed,"),
            ((*none, "--kind", "check"), "have not failed with kind check"),
            ((error["id"], "--kind", "check"), "have not failed with kind check"),
        ):
            done = shop.run(*about, *chosen)
            assert (done.returncode, said in done.stderr) == (5, True), done.stderr
    assert not shop.json("migrate", "errors", "list", "shop:app", "0001")[0]["waived"]


def test_what_is_paused_and_killed_is_taken_on_by_another_process(shop):
    write(shop, RIGHT)
    for number in range(100):
        shop.put(number, "NEW")
    slowly = ("--segments", "1", "--at-once", "1", "--max-wcu", "4")
    arguments = ("migrate", "apply", "shop:app", "0001", *slowly)
    with shop.start(*arguments, STREAMKIT_LOG_LEVEL="info") as first:
        first.wait_for('"scanning"')
        assert shop.run("migrate", "pause", "shop:app", "0001").returncode == 0
        first.signal(signal.SIGKILL)
        assert first.exit_code() == -signal.SIGKILL
    assert status_count(shop) < 100
    paused = shop.json("migrate", "status", "shop:app", "0001")
    assert (paused["phase"], paused["desired"]) == ("scanning", "pause")
    assert shop.run("migrate", "limit", "shop:app", "0001", "--max-wcu", "0").returncode == 0
    still = apply(shop, "--max-wcu", "900")
    assert (still.returncode, "keeps no limit" in still.stderr) == (8, True)
    assert "migrate resume" in still.stderr
    assert join(shop).returncode == 8
    assert shop.run("migrate", "resume", "shop:app", "0001").returncode == 0
    done = join(shop)
    assert done.returncode == 0, done.stderr
    assert status_count(shop) == 100


def status_count(shop):
    found = shop.dynamodb.scan(
        TableName=shop.table,
        FilterExpression="#s = :s",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":s": {"S": "S-NEW"}},
        ConsistentRead=True,
    )
    return found["Count"]


def test_two_operators_apply_at_once(shop):
    write(shop, SIDEWAYS)
    for number in range(20):
        shop.put(number, "NEW")
    arguments = ("migrate", "apply", "shop:app", "0001", "--segments", "8")
    with shop.start(*arguments) as one, shop.start(*arguments) as other:
        assert (one.exit_code(), other.exit_code()) == (0, 0), one.lines + other.lines
    assert {shop.journal(1000 + number) for number in range(20)} == {"NEW"}
    assert shop.json("migrate", "verify", "shop:app", "0001")["ok"]
    stopped = shop.run("migrate", "rollback", "shop:app", "0001")
    assert stopped.returncode == 0, stopped.stderr
    assert {shop.journal(1000 + number) for number in range(20)} == {""}


def test_a_table_that_is_paid_for_on_demand_has_no_share(shop):
    write(shop, RIGHT)
    refused = apply(shop, "--share", "50%")
    assert (refused.returncode, "--max-wcu" in refused.stderr) == (4, True)
    assert "pending" in shop.run("migrate", "status", "shop:app").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('mine')", "RuntimeError: mine"),
        ("import shop", "declares no migration"),
        (RIGHT.replace('"0001"', '"0007"'), "declares 0007"),
    ],
    ids=["raises", "empty", "another number"],
)
def test_a_wrong_file_is_named(shop, text, said):
    write(shop, text)
    done = shop.run("migrate", "check", "shop:app")
    assert done.returncode == 3
    assert said in done.stderr
    assert "0001_prefixed.py" in done.stderr
    assert "discovery.py" not in done.stderr


@contextmanager
def moved_to_where_it_soaks(shop, ends=""):
    """Move orders that are written to meanwhile, and switch; one process stays all the while."""
    write(shop, MOVES)
    for number in range(12):
        shop.put(number, "NEW")
    arguments = ("migrate", "apply", "shop:app", "0001", "--segments", "2", "--stay")
    with shop.start(*arguments, STREAMKIT_LOG_LEVEL="info") as stays:
        stays.wait_for('"scanning"')
        for number in range(12, 24):
            shop.put(number, "NEW", "PAID")  # by an application of before
        stays.wait_for('"ready"')
        refused = shop.run("migrate", "contract", "shop:app", "0001")
        assert (refused.returncode, "'ready'" in refused.stderr) == (4, True)
        assert parcel(shop, 3)["_sk_copy"]
        told = shop.run("migrate", "switch", "shop:app", "0001", "--detach")
        assert (told.returncode, "the processes that run it go on" in told.stdout) == (0, True)
        stays.wait_for('"soaking"')
        assert shop.run("migrate", "switch", "shop:app", "0001").returncode == 4
        deliver(shop, 30)  # by an application of after
        deliver(shop, 3)
        shop.until(lambda: status_of(shop, 3) == "SENT" and shop.item("ORDER#30", "ORDER"))
        yield
        if ends:  # it looks at the state now and then, and only then knows that it may end
            stays.wait_for(f'"{ends}"')
        stays.signal(signal.SIGTERM)
        assert stays.exit_code() == 0, stays.lines


@pytest.mark.parametrize(("side", "kept"), [("old", "LATE"), ("new", "SENT")])
def test_a_person_decides_by_commands_what_both_sides_have_written(shop, side, kept):
    about = ("shop:app", "0001")
    with moved_to_where_it_soaks(shop):
        pass
    shop.put(5, "LATE")  # by an application of before
    deliver(shop, 5)  # by an application of after
    assert join(shop).returncode == 0
    (error,) = shop.json("migrate", "errors", "list", *about)
    assert error["kind"] == "conflict"
    shown = json.loads(shop.run("migrate", "errors", "show", *about, error["id"]).stdout)
    assert json.loads(shown["detail"]).keys() == {"old", "new"}
    assert ("LATE" in shown["detail"], "SENT" in shown["detail"]) == (True, True)
    refused = shop.run("migrate", "contract", *about)
    assert (refused.returncode, "--take" in refused.stderr) == (4, True)
    waived = shop.run("migrate", "errors", "waive", *about, error["id"], "--reason", "so be it")
    assert (waived.returncode, "0 items" in waived.stdout) == (5, True)
    waived = shop.run("migrate", "errors", "waive", *about, "--all", "--reason", "so be it")
    assert (waived.returncode, "1 items cannot be waived" in waived.stderr) == (5, True)
    unknown = ("--key", '{"pk": "ORDER#77", "sk": "ORDER"}', "--take", side)
    retried = shop.run("migrate", "errors", "retry", *about, *unknown)
    assert (retried.returncode, "have not failed" in retried.stderr) == (5, True)
    unnamed = shop.run("migrate", "errors", "retry", *about, "--take", side)
    assert (unnamed.returncode, "items that you name" in unnamed.stderr) == (2, True)
    again = shop.run("migrate", "errors", "retry", *about, error["id"])
    assert (again.returncode, "1 are not" in again.stdout) == (7, True)
    decided = shop.run("migrate", "errors", "retry", *about, error["id"], "--take", side)
    assert decided.returncode == 0, decided.stderr
    assert "is soaking; nothing has to be resumed" in decided.stdout
    assert shop.json("migrate", "errors", "list", *about) == []
    assert [status_of(shop, 5), parcel(shop, 5)["status"]["S"]] == [kept, kept]


def parcel(shop, number):
    return shop.item(f"PARCEL#{number}", "PARCEL")


def deliver(shop, number):
    shop.dynamodb.update_item(
        TableName=shop.table,
        Key={"pk": {"S": f"PARCEL#{number}"}, "sk": {"S": "PARCEL"}},
        UpdateExpression="SET #s = :s, #n = :n",
        ExpressionAttributeNames={"#s": "status", "#n": "number"},
        ExpressionAttributeValues={":s": {"S": "SENT"}, ":n": {"N": str(number)}},
    )


def old_writes(shop):
    """Return how many writes in the old shape each phase has seen."""
    status = shop.json("migrate", "status", "shop:app", "0001")
    return [rate["writes"] for rate in status["old_writes"]]


def a_day_passes(shop):
    """Make the last writes at old keys a day older."""
    items = shop.dynamodb.scan(TableName=shop.table, ConsistentRead=True)["Items"]
    for item in items:
        if "#old#0001#" in item["pk"]["S"]:
            shop.dynamodb.update_item(
                TableName=shop.table,
                Key={"pk": item["pk"], "sk": item["sk"]},
                UpdateExpression="ADD #last :day",
                ExpressionAttributeNames={"#last": "_sk_last"},
                ExpressionAttributeValues={":day": {"N": f"-{QUIET_SECONDS:.0f}"}},
            )


def app_items(shop):
    """Return the status of every item of the application, by its key, and which are copies."""
    items = shop.dynamodb.scan(TableName=shop.table, ConsistentRead=True)["Items"]
    items = [item for item in items if not item["pk"]["S"].startswith("_sk#")]
    assert not [item for item in items if "_sk_copy" in item]
    return {item["pk"]["S"]: item["status"]["S"] for item in items}


def statuses(kind):
    written = {f"{kind}#{n}": "PAID" if n > 11 else "NEW" for n in range(24)}
    return written | {f"{kind}#3": "SENT", f"{kind}#30": "SENT"}


@pytest.mark.parametrize("old_code", [(), ("--old-code", "none")])
def test_items_move_by_the_commands_from_the_first_copy_to_the_last_old_item(shop, old_code):
    with moved_to_where_it_soaks(shop, ends="done"):
        assert shop.json("migrate", "verify", "shop:app", "0001")["ok"]
        both = ("--old-code", "none", "--anyway", "so be it")
        assert shop.run("migrate", "contract", "shop:app", "0001", *both).returncode == 4
        if not old_code:
            early = shop.run("migrate", "contract", "shop:app", "0001")
            assert early.returncode == 4
            assert "old code wrote at old keys, before the switch" in early.stderr
            shop.until(lambda: sum(old_writes(shop)) == 36)  # the process that stays has said all
            a_day_passes(shop)
        done = shop.run("migrate", "contract", "shop:app", "0001", *old_code, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["phase"] == "done"
        assert app_items(shop) == statuses("PARCEL")
        refused = shop.run("migrate", "rollback", "shop:app", "0001")
        assert (refused.returncode, "no way back" in refused.stderr) == (4, True)
    told = shop.run("migrate", "history", "shop:app", "0001", "--json").stdout
    said = dict.fromkeys(entry["what"] for entry in json.loads(told))
    contracts = ("contract", "leaving stubs")
    if old_code:
        contracts = ("contract --old-code none", "deleting old items")
    assert [one for one in said if one != "once more"] == [
        *("begin", "scanning", "catching up", "verifying", "ready"),
        *("switch", "soaking", *contracts, "closing", "done"),
    ]
    assert shop.run("migrate", "check", "shop:app").returncode == 0


def test_items_that_moved_go_back_by_a_command_with_all_that_was_written_since(shop):
    with moved_to_where_it_soaks(shop, ends="rolled back"):
        held = shop.run("migrate", "rollback", "shop:app", "0001")
        assert held.returncode == 8, held.stderr
        assert "new code wrote at new keys" in held.stdout
        assert "--new-code none" in held.stderr
        back = shop.run("migrate", "rollback", "shop:app", "0001", "--new-code", "none")
        assert back.returncode == 0, back.stderr
        assert app_items(shop) == statuses("ORDER")
        assert shop.run("migrate", "verify", "shop:app", "0001").returncode == 0
