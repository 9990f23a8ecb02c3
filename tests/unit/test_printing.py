"""What commands print fits a terminal, has colours only there, and ends with the next command."""

import io
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from streamkit.cli.describing import describe_fan_outs, describe_inspection, describe_status
from streamkit.cli.exits import ExitCode
from streamkit.cli.explaining import _describe
from streamkit.cli.following import after_check, after_explanation, after_status
from streamkit.cli.migration_views import describe_lines, describe_state, progress_line
from streamkit.cli.printing import say, say_next, seconds, table
from streamkit.cli.verdicts import verdict
from streamkit.cli.watching import Lags, differences
from streamkit.fleet.directory import Halt
from streamkit.fleet.hosting import ENDED, LAMBDA, TO_LAMBDA
from streamkit.migrate.book.state import State
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.operate.progress import Progress
from streamkit.migrate.operate.status import Line
from streamkit.operate.explanation import Explanation, Listening, Waiting
from streamkit.operate.fan_outs import FanOutStatus
from streamkit.operate.inspection import AppInspection, Permission, TableFacts
from streamkit.operate.status import WorkerStatus
from tests.unit.test_status_page import shard, status

SHARD = "shardId-00000001795296965923-be4f9a6{}"
KNOWN = {"host": "workers", "operations": (), "audit": (), "halts": (), "refused": ()}
OWNER = "ip-10-0-{}-17.eu-central-1.compute.internal/1/3f2a9b8c7d6e"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def draw(print_, *arguments, **options):
        with redirect_stdout(Terminal()) as shown:
            print_(*arguments, **options)
        return shown.getvalue()

    return draw


def busy(**facts):
    owners = [OWNER.format(number) for number in range(3)]
    workers = tuple(
        WorkerStatus(name, "active", 4, 2, 9, 0, 1.0, leads=not n) for n, name in enumerate(owners)
    )
    shards = [
        shard(SHARD.format(n), depth=n, owner=owners[n], parked={"journal": n}) for n in range(3)
    ]
    return status(*shards, **KNOWN | {"workers": workers, "parked": {"journal": 3}} | facts)


def test_a_status_says_what_the_archive_refuses(terminal):
    said = "the archive in s3://changes/ answers PutObject with AccessDenied"
    assert f"{said}; handlers go on" in terminal(describe_status, busy(refused=(said,)))


def test_on_80_columns_a_status_keeps_parked_and_the_ends_of_names(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = terminal(describe_status, busy()).splitlines()
    head = next(line for line in lines if line.startswith("SHARD"))
    assert head.split() == ["SHARD", "STATE", "OWNER", "LAG", "PARKED"]
    rows = lines[lines.index(head) + 1 :][:3]
    assert all(row.endswith(f"journal {n}") for n, row in enumerate(rows))
    assert all(f"be4f9a6{n}" in row and "7d6e" in row for n, row in enumerate(rows))
    assert max(map(len, lines)) <= 80


def test_fan_outs_fit_80_columns_with_how_much_is_done_and_left(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lane = "8f9c2e7a5b3d1f4c6e8a0b2d"
    known = FanOutStatus(lane, "notify_watchers", "serving", 1_500_000, 2, 3, 0, 0.6, 480.0, 2e3)
    shown = terminal(describe_fan_outs, [known, FanOutStatus(lane, "told", "stuck", 5, 0, 0, 0)])
    head, first, second = map(str.split, shown.splitlines())
    assert head[:6] == ["FAN-OUT", "HANDLER", "STATE", "SERVED", "DONE", "LEFT"]
    assert first[2:7] == ["serving", "1500000", "60%", "33", "min"]
    assert second[2:6] == ["stuck", "5", "?", "?"]
    assert max(map(len, shown.splitlines())) <= 80


def test_a_line_of_a_migration_says_how_long_its_scan_still_takes(capsys):
    describe_lines(
        [
            Line("0003", "backfilling", "50.0%", 7, "captures", 0.5, 2000.0),
            Line("0004", "backfilling", "0.1%", 0, "", 0.001, None),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "migration 0003: backfilling, 50.0% of the scan, about 33 min left, 7 errors; captures",
        "migration 0004: backfilling, 0.1% of the scan",
    ]


def test_a_wide_terminal_and_a_pipe_show_everything(terminal, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "220")
    assert "POSITION" in terminal(describe_status, busy())
    monkeypatch.delenv("COLUMNS")
    describe_status(busy())
    piped = capsys.readouterr().out
    assert "POSITION" in piped
    assert SHARD.format(2) in piped
    assert OWNER.format(2) in piped


def test_colours_are_for_terminals_and_no_color_switches_them_off(terminal, monkeypatch, capsys):
    assert terminal(say, "lost", fg="red") == "\x1b[31mlost\x1b[0m\n"
    assert "\x1b[33msilent\x1b[0m" in terminal(table, ("role",), [("silent",)])
    say("lost", fg="red")
    assert capsys.readouterr().out == "lost\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal(say, "lost", fg="red") == "lost\n"


def fleet(**facts):
    """Two workers that have the same in common."""
    known = {"state": "active", "generation": 4, "shards": 1, "beats": 9, "last_beat": 0}
    known |= {"beat_age_seconds": 1.0, "leads": False}
    return tuple(WorkerStatus(**{"name": name, **known, **facts}) for name in "ab")


def test_a_fleet_of_which_nothing_is_heard_is_not_shown_as_if_it_worked(capsys):
    """Workers that were killed leave their items, so the table of workers is not empty."""
    said = "no worker is heard any more"
    describe_status(busy(workers=fleet(silent=True)))
    out = capsys.readouterr().out
    assert said in out
    assert "or are cut off; `status --exit-code` waits for a heartbeat" in out
    describe_status(busy(workers=(*fleet(silent=True), *fleet())))
    assert said not in capsys.readouterr().out


def test_a_fleet_that_is_behind_and_throttled_says_so_and_where_to_look(capsys):
    said = "AWS has throttled 14 calls: if `status --watch` shows more"
    slow = busy(workers=fleet(throttled=7), lag_seconds=90.0)
    describe_status(slow)
    assert said in capsys.readouterr().out
    for fine in (busy(workers=fleet(throttled=7), lag_seconds=1.0), busy(lag_seconds=90.0)):
        describe_status(fine)
        assert "AWS has throttled" not in capsys.readouterr().out


def test_a_fleet_that_only_stands_by_says_until_when(capsys):
    describe_status(busy(workers=fleet(state="waiting")))
    shown = capsys.readouterr().out
    assert "stands by" in shown
    assert "STREAMKIT_TAKE_OVER=1" in shown
    describe_status(busy(workers=(*fleet(state="waiting"), *fleet())))
    assert "STREAMKIT_TAKE_OVER=1" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("facts", "next_"),
    [
        ({"generation": None}, ("worker",)),
        ({"workers": ()}, ("worker",)),
        ({"workers": fleet(silent=True)}, ("worker",)),
        ({"workers": fleet(state="waiting")}, ("status", "--watch")),
        ({"workers": (*fleet(state="waiting"), *fleet())}, ("parked list",)),
        ({"paused": 1}, ("consumers resume",)),
        ({"stuck_queues": 1}, ("parked list", "--stuck")),
        ({}, ("parked list",)),
        ({"fan_outs": (FanOutStatus("q", "told", "serving", 9, 0, 1, 0),)}, ("parked list",)),
        ({"fan_outs": (FanOutStatus("q", "told", "failed", 9, 0, 2, 0),)}, ("parked list",)),
        ({"fan_outs": (FanOutStatus("q", "told", "serving", 9, 0, 2, 0),)}, ()),
        ({"parked": {}, "needs_rebuild": ("Sales",)}, ("aggregate rebuild", "Sales")),
        ({"parked": {}, "unread_shards": ("s",)}, ("status", "--watch")),
        ({"halts": (Halt("shop.told", 1, "gaps"),)}, ("parked list",)),
        ({"halts": (Halt("shop.told", 1, "gaps"),), "parked": {}}, ("check",)),
        ({"halts": (Halt(busy().consumer, 1, "gaps"),), "stuck_queues": 1}, ("check",)),
        ({"workers": (), "host": LAMBDA}, ("parked list",)),
        ({"parked": {}}, ()),
    ],
)
def test_a_status_is_followed_by_what_its_worst_trouble_asks_for(facts, next_):
    assert after_status(busy(**facts)) == next_


def test_a_migration_without_which_no_worker_starts_comes_before_the_worker():
    needed = ("migrate apply",)
    for facts in ({"generation": None}, {"workers": ()}, {"workers": (), "host": LAMBDA}):
        assert after_status(busy(**facts), needed) == needed
    assert after_status(busy(), needed) == ("parked list",), "another release runs meanwhile"


def test_a_missing_migration_without_which_nothing_starts_is_not_fine():
    for facts, code in (({}, ExitCode.PROBLEMS), ({"paused": 1.0}, ExitCode.PAUSED)):
        found = verdict(busy(parked={}, **facts), alive=True, may_start=False)
        assert found[0] == code
        assert "a migration is missing" in found[1][-1]


@pytest.mark.parametrize(
    ("found", "of"),
    [
        (status(**KNOWN, lost=1), "the whole stream"),
        (status(shard("s7", lost=1), shard("s8"), **KNOWN), "s7"),
        (status(shard("s7"), shard("s8", lag="lost"), **KNOWN), "s8"),
    ],
)
def test_a_loss_decides_the_verdict_whatever_else_is_wrong(found, of):
    code, reasons = verdict(replace(found, paused=1.0), alive=False)
    assert code == ExitCode.RETENTION_LOST
    assert reasons[0] == f"changes may have been lost, of {of}"
    assert reasons[1].startswith("it has been paused since")
    assert reasons[2] == "no worker is alive"


@pytest.mark.parametrize(
    ("facts", "alive", "reason"),
    [
        ({"host": "workers"}, True, None),
        ({"host": "workers"}, False, "no worker is alive"),
        ({"host": "workers", "lag_seconds": None}, True, "its lag is not known"),
        ({"host": LAMBDA, "lag_seconds": None}, False, None),
        *(({"host": host, "lag_seconds": None}, False, None) for host in ENDED),
        ({"host": TO_LAMBDA}, True, "it is being moved (to lambda); repeat the command that began"),
    ],
)
def test_a_verdict_asks_for_workers_only_where_workers_run_it(facts, alive, reason):
    code, reasons = verdict(busy(parked={}, **facts), alive=alive)
    assert code == (ExitCode.PROBLEMS if reason else ExitCode.OK)
    assert [one.startswith(reason) for one in reasons] == [True] * bool(reason)


def test_fan_outs_under_way_are_not_counted_as_parked(capsys):
    fan_outs = tuple(
        FanOutStatus(q, "told", "serving", 9, 0, n, 0) for q, n in (("a", 0), ("b", 1))
    )
    found = busy(parked={"told": 3, "journal": 1}, parked_queues=3, fan_outs=fan_outs)
    said = "in 1 queues, 0 stuck; 3 changes in 2 fan-outs under way"
    describe_status(found)
    assert f"1 parked {said}\n" in capsys.readouterr().out
    assert f"1 changes are parked {said}" in verdict(found, alive=True)[1]


def test_items_of_a_verification_that_were_right_are_not_called_skipped(capsys):
    now = Progress("0003", "in_place", "done", "run", "forward", "")
    state = State("0003", phase="done", verified={"scanned": 9, "skipped": 7, "conflicts": 1})
    describe_state(state, now)
    said = "last verification: 9 scanned, 7 needed nothing, 1 tried again\n"
    assert said in capsys.readouterr().out


def test_a_scan_of_which_no_segment_has_begun_says_so_instead_of_a_share_of_nothing():
    waits = Progress(
        "0003", "rekey", "switching", "run", "forth", "", share=0.0, segments=4, lag=90
    )
    begun = replace(waits, tally=Tally(scanned=1))
    text = "0003 switching | its scan has not begun | capture lag 90 s"
    assert progress_line(waits) == text
    assert "0.0% ±0.0% | segments 0/4 | 1 read" in progress_line(begun)


def test_segments_of_a_process_that_is_silent_are_told_with_when_they_are_taken():
    held = Progress("0003", "touch", "scanning", "run", "forward", "", held={"host-7": 2})
    assert (
        "2 of its segments are held by host-7, which is silent: another process takes them when it"
        " has seen no write for 15 s"
    ) in progress_line(held)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {},
            "uses what it has, 5 write units a second, and is 5 min behind what the application writes",
        ),
        ({"written": 5.02}, "is 5 min behind what the application writes, 5.02 items a second"),
        ({"max_writes": None, "max_reads": 9.0}, "uses what it has, 9 read units a second"),
        ({"phase": "scanning", "reason": "limit"}, "uses what it has, 5 write units"),
        ({"writes": {"": 2.0}}, None),
        ({"lag": 3.0}, None),
        ({"max_writes": None}, None),
    ],
)
def test_a_budget_below_what_the_application_writes_is_the_reason_that_is_told(facts, said):
    spends = {"reads": 8.9, "writes": {"": 1.0, "GSI1": 4.9}, "lag": 300.0, "max_writes": 5.0}
    given = {"phase": "catching up", "reason": "capture"} | spends | facts
    phase = given.pop("phase")
    now = Progress("0003", "rekey", phase, "run", "forward", "", **given)
    told = [part for part in progress_line(now).split(" | ") if part.startswith("its budget")]
    assert bool(told) is (said is not None)
    if said is not None:
        assert said in told[0]
        units = "rcu" if "read" in said else "wcu"
        assert told[0].endswith(f"raise it with `streamkit migrate limit --max-{units}`")


def test_a_name_keeps_eight_characters_however_narrow_the_terminal_is(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("a-long-name-1", "x" * 20), ("short", "y")]
    lines = terminal(lambda: table(("name", "text"), rows, cut=("name",))).splitlines()
    assert lines[1:] == ["…-name-1  " + "x" * 20, "short     y"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0.4, "0 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (5400.0, "90 min"),
        (7199.0, "120 min"),
        (7200.0, "2.0 h"),
        (90_000.0, "25.0 h"),
    ],
)
def test_a_duration_has_the_unit_that_people_take(value, text):
    assert seconds(value) == text


def test_what_the_archive_refuses_is_not_fine():
    found = verdict(busy(parked={}, refused=("the archive is full",)), alive=True)
    assert found == (ExitCode.PROBLEMS, ["the archive is full"])


def test_the_next_command_can_be_pasted(capsys):
    say_next("shop:app", ("parked show", "--queue", "a b"), "search")
    say_next(None, ("worker",))
    say_next("shop:app", ("worker",), "search")  # a worker runs all listeners of its app
    say_next("shop:app", ())
    say_next("shop:app", ("aggregate rebuild", "Sales"), "search")
    assert capsys.readouterr().out.splitlines() == [
        "next: streamkit parked show shop:app --queue 'a b' --listener search",
        "next: streamkit worker",
        "next: streamkit worker shop:app",
        "next: streamkit aggregate rebuild shop:app.search Sales",
    ]


def test_an_item_with_a_parked_change_is_followed_by_the_command_that_shows_it():
    facts = dict.fromkeys(Explanation.__dataclass_fields__)
    waits = (Waiting("1", "ValueError", 3, 0),)
    one = Listening("shop.search", "index", (), None, "", "queue-1", parked=waits)
    found = Explanation(**facts | {"listening": (one,)})
    assert after_explanation(found) == (
        "parked show", "--queue", "queue-1", "--listener", "search",
    )  # fmt: skip
    assert after_explanation(Explanation(**facts | {"listening": ()})) == ()


@pytest.mark.parametrize(
    ("writer", "hops", "said"),
    [
        ("shipped", 1, "last written by the handler shipped, 1 handler after a user"),
        ("shipped", 2, "last written by the handler shipped, 2 handlers after a user"),
        ("shop.0001", 0, "last written by the migration shop.0001"),
    ],
)
def test_what_wrote_an_item_last_is_called_what_it_is(writer, hops, said, capsys):
    facts = dict.fromkeys(Explanation.__dataclass_fields__)
    facts |= {"listening": (), "attributes": (), "kind": "unknown", "shards": 1}
    _describe(Explanation(**facts | {"written_by": writer, "hops": hops}), history=False)
    assert said in capsys.readouterr().out.splitlines()


def test_a_permission_that_was_not_tried_says_once_why(capsys):
    table = TableFacts("T", {}, None, None, None, {})
    asked = (Permission("dynamodb:GetRecords", None, "without a stream"),)
    describe_inspection(AppInspection("shop", table, "T", asked, (), ()))
    assert "dynamodb:GetRecords  not tried without a stream" in capsys.readouterr().out


@pytest.mark.parametrize(("allowed", "next_"), [(True, ()), (None, ()), (False, ("iam",))])
def test_a_check_that_misses_a_permission_is_not_ok_and_says_how_to_print_them(allowed, next_):
    table = TableFacts("T", {}, None, None, None, {})
    asked = (Permission("dynamodb:GetItem", True), Permission("dynamodb:GetRecords", allowed))
    found = AppInspection("shop", table, "T", asked, (), ())
    assert after_check(found) == next_
    assert found.ok == (allowed is not False)


class Minutes:
    """A clock that goes on by a minute at each look."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 60.0
        return self.now


def test_a_backlog_that_shrinks_says_when_all_is_read():
    lags = Lags(Minutes())

    def said(seconds):
        return lags.note(busy(lag_seconds=seconds))

    assert said(7200.0) == []
    assert said(7200.0) == [], "it does not come nearer"
    assert said(3600.0) == ["all is read in 2 min"]
    assert said(1800.0) == ["all is read in 60 s"]
    assert said(20.0) == [], "that is as good as read"
    assert said(None) == []
    assert said(3600.0) == [], "a pace is that of looks in a row"


def test_two_looks_differ_in_numbers_workers_and_shards():
    before = busy(lag_seconds=40.0)
    workers = (*before.workers[1:], WorkerStatus("new", "active", 4, 1, 1, 0, 1.0, leads=False))
    shards = (
        shard(SHARD.format(0), state="finished"),
        shard(SHARD.format(1), owner=None),
        shard(SHARD.format(2), owner=OWNER.format(2), waits_for=("journal",)),
        shard("late"),
    )
    facts = {"workers": workers, "parked": {"journal": 5}, "lag_seconds": 12.0, "paused": 7}
    known = {"host": "workers", "operations": (), "audit": (), "halts": (), "refused": ()}
    assert list(differences(before, status(*shards, **known | facts))) == [
        "lag 12 (-28)",
        "parked 5 (+2)",
        "paused",
        "worker new came",
        f"worker {OWNER.format(0)} left",
        f"{SHARD.format(0)} is finished",
        f"{SHARD.format(1)} is read by no worker",
        f"{SHARD.format(2)} waits for journal",
        "late is new",
    ]
    assert list(differences(before, before)) == []
    waiting, free = (status(shard("s", waits_for=waits), **known) for waits in (("a", "b"), ()))
    assert list(differences(free, waiting)) == ["s waits for a, b"]
    assert list(differences(waiting, free)) == ["s waits for no handler any more"]
    again = status(*shards, **known | facts | {"paused": 8})
    assert list(differences(status(*shards, **known | facts), again)) == [], (
        "it is paused as before"
    )


def test_a_worker_that_falls_silent_or_is_throttled_is_news_once():
    before = busy(workers=fleet(throttled=5))
    for facts, news in (
        ({"throttled": 7}, ["2 calls of a throttled", "2 calls of b throttled"]),
        ({"throttled": 0}, []),  # it has started again
        ({"throttled": 5, "silent": True}, ["worker a is silent", "worker b is silent"]),
    ):
        now = busy(workers=fleet(**facts))
        assert sorted(differences(before, now)) == news
        assert list(differences(now, now)) == []


def test_a_consumer_that_reads_the_archive_has_its_oldest_change_there(terminal):
    reading = status(shard("s1", lag="archived"), **KNOWN, time_to_loss_seconds=None)
    said = terminal(describe_status, reading)
    assert "the oldest unread change is in the archive\n" in said
    assert "no change is known to be lost\n" in said
    unread = status(shard("s1", lag="unknown"), **KNOWN, time_to_loss_seconds=None)
    said = terminal(describe_status, unread)
    assert "? until the oldest unread change is trimmed\n" in said
    assert "not read: the stream\n" in said
