"""The status page: what it shows is escaped, complete and without item data."""

import re
from html.parser import HTMLParser

import pytest

from streamkit import App, Entity, Inserted, Put
from streamkit.migrate.status import Line
from streamkit.operate.fan_outs import FanOutStatus
from streamkit.operate.spending import Spending
from streamkit.operate.status import ShardStatus, Status, WorkerStatus
from streamkit.operate.status_page.checks import Verdict
from streamkit.operate.status_page.markup import Markup, duration, element
from streamkit.operate.status_page.page import (
    ConsumerView,
    HandlerView,
    ProcessFacts,
    render,
    short,
)
from streamkit.operate.status_page.style import CSS, POLICY
from streamkit.worker.report import WorkerReport

EVIL = "<script>alert('x')</script>\"&"


class Deal(Entity, pk="DEAL#{number}", sk="DEAL"):
    number: int


app = App("deals", table="Deals")


@app.on
def notify(change: Inserted[Deal]) -> Put[Deal]:
    raise NotImplementedError


class Reader(HTMLParser):
    """Reads a page as a browser does: the text of each element, and whether all are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def shard(name, depth=0, **facts):
    known = {"parent": None, "state": "active", "owner": "host/1/worker", "epoch": 3}
    known |= {"generation": 1, "position": "", "lag_seconds": 7.0, "lag": "at most"}
    known |= {"held_lanes": 0, "parked": {}, "lost": 0, "time_to_loss_seconds": 80_000.0}
    return ShardStatus(name=name, depth=depth, **known | facts)


def status(*shards, **facts):
    known = {"generation": 4, "current": True, "needs_rebuild": (), "workers": (), "parked": {}}
    known |= {"held_lanes": 0, "stuck_lanes": 0, "lag_seconds": 7.0, "since": 0, "lost": 0}
    known |= {"time_to_loss_seconds": 80_000.0, "paused": 0, "fan_outs": (), "unread_shards": ()}
    fields = Status.__dataclass_fields__.keys()
    extra = dict.fromkeys(fields - known.keys() - {"consumer", "table", "stream", "shards"})
    return Status(
        consumer="deals", table="Deals", stream="arn", shards=shards, **extra | known | facts
    )


def page(*views, ready=(), **process):
    known = {"version": "1.0", "worker": "host/1/worker", "at": "now"} | process
    return render(ProcessFacts(ready=Verdict(ready), **known), views)


def view(found=None, *, report=None, **facts):
    handlers = [HandlerView(handler, 5, 0.0123, 4) for handler in app.handlers]
    return ConsumerView(
        report or WorkerReport("deals", "active", {"shard-1": 2.0}), handlers, found, **facts
    )


def test_shards_stand_as_the_tree_of_their_splits_with_what_is_known_here():
    found = status(
        shard("shard-0", state="finished"),
        shard("shard-1", depth=1, held_lanes=2, parked={"notify": 3}),
        shard("shard-2", depth=1),
    )
    rows = Reader(page(view(found))).rows
    start = rows.index(["shard", "behind", "state", "owner", "held items", "parked", "epoch"])
    assert rows[start + 1 : start + 4] == [
        ["shard-0", "\u2013", "finished", "host/1/worker", "0", "0", "3"],
        ["\u2514\u00a0shard-1", "2.0 s", "active", "host/1/worker", "2", "3", "3"],
        ["\u2514\u00a0shard-2", "7.0 s", "active", "host/1/worker", "0", "0", "3"],
    ], "the lag of a shard that is read here is the worker's own"


def test_handlers_parked_changes_fan_outs_workers_and_migrations_have_their_rows():
    worker = WorkerStatus("host/1/worker", "active", 4, 2, 9, 0, 1.0, leads=True)
    found = status(
        parked={"notify": 12},
        fan_outs=(FanOutStatus("lane", "notify", "serving", 1500, 2, 3, 0),),
        workers=(worker,),
    )
    migrations = [Line("0003", "backfill", "50.0%", 7, "captures")]
    rows = Reader(page(view(found, migrations=migrations))).rows
    assert ["notify", "Deal: inserted", "exactly once", "4", "5", "12.3 ms", ""] in rows
    assert ["notify", "12"] in rows
    assert ["notify", "serving", "1,500", "2", "3"] in rows
    assert ["host/1/worker", "active", "2", "4", "1.0 s ago", "leads"] in rows
    assert ["0003", "backfill", "50.0%", "7", "captures"] in rows


def test_what_an_operator_has_to_see_is_on_the_page():
    found = status(
        shard("shard-1", lag="lost"), needs_rebuild=("notify",), stuck_lanes=3, parked={"notify": 5}
    )
    text = page(
        view(found, spending=Spending("deals", 2, 900, {"read": 1e6, "write": 2e6, "stream": 1e6})),
        ready=("deals: it starts",),
    )
    for shown in (
        "not ready",
        "deals: it starts",
        "needs rebuild",
        "shards with losses",
        "items stuck",
    ):
        assert shown in text
    assert "$1.57" in text, "a day, by the prices of what was used"


def test_a_table_that_cannot_be_read_leaves_what_the_worker_knows():
    text = page(view(trouble="ClientError: AccessDeniedException"))
    assert "The table could not be read: ClientError: AccessDeniedException." in text
    assert "behind, here" in text
    assert "notify" in text


def test_a_shard_that_waits_for_a_handler_names_it():
    rows = Reader(page(view(status(shard("shard-1", waits_for=("confirm",)))))).rows
    assert ["shard-1", "2.0 s", "waits for confirm", "host/1/worker", "0", "0", "3"] in rows


@pytest.mark.parametrize(
    ("state", "words"), [("waiting", "stands by"), ("unfit", "cut off from the stream")]
)
def test_states_are_said_in_words(state, words):
    assert words in page(view(report=WorkerReport("deals", state)))
    assert "paused" in page(view(report=WorkerReport("deals", "active", paused=1)))


def test_a_process_that_starts_has_a_page():
    text = page(ready=("it starts",), worker="")
    assert "<title>starting · streamkit</title>" in text
    Reader(text)


def test_whatever_things_are_called_the_page_stays_a_page():
    worker = WorkerStatus(EVIL, EVIL, 4, 2, 9, 0, 1.0, leads=True)
    found = status(shard(EVIL, owner=EVIL, state=EVIL), parked={EVIL: 1}, workers=(worker,))
    text = page(
        view(
            found,
            report=WorkerReport(EVIL, EVIL),
            trouble=EVIL,
            migrations=[Line(EVIL, EVIL, EVIL, 1, EVIL)],
        ),
        ready=(EVIL,),
        worker=EVIL,
        version=EVIL,
        at=EVIL,
    )
    reader = Reader(text)
    assert "script" not in {tag for tag, _ in reader.tags}
    assert reader.open == []


def test_the_page_loads_nothing_and_may_load_nothing():
    reader = Reader(page(view(status(shard("s")))))
    names = {name for _, attributes in reader.tags for name in attributes}
    assert names.isdisjoint({"src", "style", "onclick", "onload"})
    links = {attributes.get("href") for tag, attributes in reader.tags if tag in ("a", "link")}
    assert links == {"/metrics"}
    assert "url(" not in CSS
    assert "@import" not in CSS
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[\w+/]{43}='", POLICY)


def test_the_page_comes_back_by_itself_and_fits_a_phone():
    tags = Reader(page(view())).tags
    assert ("meta", {"http-equiv": "refresh", "content": "10"}) in tags
    assert any(a.get("name") == "viewport" for tag, a in tags if tag == "meta")
    assert "prefers-color-scheme: dark" in CSS


def test_thousands_of_shards_make_no_endless_page():
    text = page(view(status(*(shard(f"shard-{n}") for n in range(5000)))))
    assert "and 4,800 more" in text
    assert len(text) < 200_000


def test_an_element_escapes_all_but_elements():
    inner = element("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert (
        element("p", inner, None, 1234, title='"', lang=None)
        == f'<p title="&quot;">{inner}1,234</p>'
    )
    assert isinstance(inner, Markup)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\u2013"),
        (float("nan"), "\u2013"),
        (0, "0 s"),
        (1.23, "1.2 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (150, "2 min 30 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86400 * 2 + 3700, "2 d 1 h"),
    ],
)
def test_durations_are_said_in_two_units(seconds, text):
    assert duration(seconds) == text


def test_long_names_keep_their_end():
    assert short("shardId-00000001795296965923-be4f9a60") == "…96965923-be4f9a60"
    assert short("shardId-1") == "shardId-1"
