"""The status page: what it shows is escaped, complete and without item data."""

import base64
import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from streamkit import App, Entity, Inserted, Put
from streamkit.core.parking import Parked
from streamkit.fleet.directory import Halt
from streamkit.migrate.operate.status import Line
from streamkit.operate.explanation import Explanation, Listening, Waiting
from streamkit.operate.fan_outs import FanOutStatus
from streamkit.operate.operations import OperationStatus
from streamkit.operate.shards import ShardStatus
from streamkit.operate.spending import Spending
from streamkit.operate.status import Status, WorkerStatus
from streamkit.operate.status_page.checks import Verdict
from streamkit.operate.status_page.history import POINTS, STEP_SECONDS, History
from streamkit.operate.status_page.markup import Markup, duration, element
from streamkit.operate.status_page.page import render
from streamkit.operate.status_page.requests import BrowserRequest, Gate, comes_from_here
from streamkit.operate.status_page.style import CSS, POLICY
from streamkit.operate.status_page.tables import short
from streamkit.operate.status_page.views import Asked, ConsumerView, HandlerView, ProcessFacts
from streamkit.worker.report import WorkerReport

SHARD_HEADS = [
    *("shard", "behind", "last hour", "state", "owner", "queues", "parked", "epoch"),
]
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
        if tag not in ("meta", "input"):
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
    known |= {"parked_queues": 0, "parked": {}, "lost": 0, "time_to_loss_seconds": 80_000.0}
    return ShardStatus(name=name, depth=depth, **known | facts)


def status(*shards, **facts):
    known = {"generation": 4, "current": True, "needs_rebuild": (), "workers": (), "parked": {}}
    known |= {"parked_queues": 0, "stuck_queues": 0, "lag_seconds": 7.0, "since": 0, "lost": 0}
    known |= {"time_to_loss_seconds": 80_000.0, "paused": 0, "fan_outs": (), "unread_shards": ()}
    fields = Status.__dataclass_fields__.keys()
    extra = dict.fromkeys(fields - known.keys() - {"consumer", "table", "stream", "shards"})
    return Status(
        consumer="deals", table="Deals", stream="arn", shards=shards, **extra | known | facts
    )


def page(*views, ready=(), asked=None, **process):
    known = {"version": "1.0", "worker": "host/1/worker", "at": "now"} | process
    return render(ProcessFacts(ready=Verdict(ready), **known), views, asked)


def view(found=None, *, report=None, **facts):
    handlers = [HandlerView(handler, 5, 0.0123, 4, 3, 2.0) for handler in app.handlers]
    return ConsumerView(
        report or WorkerReport("deals", "active", {"shard-1": 2.0}), handlers, found, **facts
    )


def test_shards_stand_as_the_tree_of_their_splits_with_what_is_known_here():
    found = status(
        shard("shard-0", state="finished"),
        shard("shard-1", depth=1, parked_queues=2, parked={"notify": 3}),
        shard("shard-2", depth=1),
    )
    rows = Reader(page(view(found), asked=Asked(finished=True))).rows
    start = rows.index(SHARD_HEADS)
    assert rows[start + 1 : start + 4] == [
        ["shard-0", "\u2013", "", "finished", "host/1/worker", "0", "0", "3"],
        ["\u2514\u00a0shard-1", "2.0 s", "", "active", "host/1/worker", "2", "3", "3"],
        ["\u2514\u00a0shard-2", "7.0 s", "", "active", "host/1/worker", "0", "0", "3"],
    ], "the lag of a shard that is read here is the worker's own"


@pytest.mark.parametrize(
    ("facts", "state"), [({"lag": "lost"}, "lost"), ({"lost": 5}, "lost"), ({}, "active")]
)
def test_a_shard_that_has_lost_records_says_so_also_after_it_went_on(facts, state):
    rows = Reader(page(view(status(shard("shard-1", **facts))))).rows
    assert rows[rows.index(SHARD_HEADS) + 1][3] == state


def test_open_shards_stand_first_those_behind_above_and_finished_ones_are_folded_away():
    done = [shard(f"old-{n}", state="finished") for n in range(64)]
    found = status(*done, shard("shard-1"), shard("shard-2", lag_seconds=90.0), shard("other"))
    text = page(view(found))
    rows = Reader(text).rows
    start = rows.index(SHARD_HEADS)
    assert [row[0] for row in rows[start + 1 : start + 4]] == ["shard-2", "other", "shard-1"]
    assert "old-1" not in text
    assert 'href="/?finished=1">show 64 finished' in text
    some = Reader(page(view(found), asked=Asked(shards="shard-"))).rows
    assert [row[0] for row in some[some.index(SHARD_HEADS) + 1 :][:2]] == ["shard-2", "shard-1"]
    assert "other" not in [row[0] for row in some]
    found = status(shard("shard-1"), shard("shard-2", owner="host/2/worker"), shard("other"))
    owned = Reader(page(view(found), asked=Asked(shards="host/2"))).rows
    assert [row[0] for row in owned[owned.index(SHARD_HEADS) + 1 :][:1]] == ["shard-2"]
    assert "other" not in [row[0] for row in owned]


def test_what_was_opened_stays_open_when_the_page_comes_back():
    asked = Asked(shards="a b", finished=True, errors="deals")
    tags = Reader(page(view(status(shard("a b"), parked={"notify": 1})), asked=asked)).tags
    (again,) = [a["content"] for _, a in tags if a.get("http-equiv") == "refresh"]
    assert again == "10;url=/?shards=a+b&finished=1&errors=deals"


def test_handlers_parked_changes_fan_outs_workers_and_migrations_have_their_rows():
    worker = WorkerStatus("host/1/worker", "active", 4, 2, 9, 0, 1.0, leads=True)
    found = status(
        parked={"notify": 12},
        fan_outs=(FanOutStatus("lane", "notify", "serving", 1500, 2, 3, 0, 0.25, 15.0, 300.0),),
        workers=(worker,),
        operations=(OperationStatus("rebuild", "Sales", "scanning", share=0.25, left=600.0),),
    )
    migrations = [Line("0003", "backfill", "50.0%", 7, "captures", 0.5, 90.0)]
    rows = Reader(page(view(found, migrations=migrations))).rows
    assert [
        *("notify", "Deal: inserted", "exactly once", "2.0 s", "", "4", "", "5", "12.3 ms"),
        *("100%", "\u2013", ""),
    ] in rows
    assert ["notify", "12", ""] in rows
    assert ["notify", "serving", "25%", "1,500", "25%", "5 min", "15.0", "2", "3"] in rows
    assert ["host/1/worker", "active", "2", "4", "1.0 s ago", "leads"] in rows
    assert ["0003", "backfill", "50%", "50.0%", "1 min 30 s", "7", "captures"] in rows
    assert ["rebuild of Sales", "scanning", "25%", "25%", "10 min", "\u2013", ""] in rows


def test_a_worker_without_heartbeats_is_called_silent_and_not_active():
    gone = WorkerStatus("host/2/gone", "active", 4, 2, 9, 0, 900.0, leads=False, silent=True)
    text = page(view(status(workers=(gone,))))
    assert ["host/2/gone", "silent", "2", "4", "15 min ago", ""] in Reader(text).rows
    assert '<td class="bad">silent</td>' in text


def test_a_worker_that_was_killed_a_moment_ago_is_called_late_and_not_the_leader():
    killed = WorkerStatus("host/2/gone", "active", 4, 2, 9, 0, 9.0, leads=True, late=True)
    text = page(view(status(workers=(killed,))))
    assert ["host/2/gone", "late", "2", "4", "9.0 s ago", ""] in Reader(text).rows


def test_what_an_operator_has_to_see_is_on_the_page():
    found = status(
        shard("shard-1", lag="lost"),
        needs_rebuild=("notify",),
        stuck_queues=3,
        parked={"notify": 5},
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


def test_a_consumer_that_halted_at_its_start_is_on_the_page_with_since_when_and_why():
    found = status(halts=(Halt("deals.ship", 1_790_000_000, "records of 2 hours are gone"),))
    text = page(view(found))
    said = "deals.ship does not run: it halted at its start, at 2026-09-21 14:13:20 UTC:"
    assert f'<p class="bad">{said} records of 2 hours are gone</p>' in text
    assert "does not run" not in page(view(status()))


def test_what_the_archive_refuses_is_on_the_page():
    said = "the archive in s3://changes/ answers PutObject with AccessDenied"
    assert f'<p class="bad">{said}</p>' in page(view(status(refused=(said,))))


def test_a_table_that_cannot_be_read_leaves_what_the_worker_knows():
    text = page(view(trouble="ClientError: AccessDeniedException"))
    assert "The table could not be read: ClientError: AccessDeniedException." in text
    assert "behind, here" in text
    assert "notify" in text
    assert "shards without a reader" not in text
    alone = WorkerReport("deals", "active", {"shard-1": 2.0}, unread=3)
    text = page(view(report=alone, trouble="TimeoutError"))
    assert '<b class="bad">3</b><span>shards without a reader' in text


@pytest.mark.parametrize(
    ("left", "tone"), [(None, ""), (float("nan"), ""), (80_000.0, ""), (60.0, ' class="bad"')]
)
def test_the_time_to_a_loss_is_a_warning_only_where_it_is_known_and_short(left, tone):
    text = page(view(status(time_to_loss_seconds=left)))
    assert re.search(f"<b{tone}>[^<]*</b><span>until changes are lost", text)


def test_a_shard_that_waits_for_a_handler_names_it():
    rows = Reader(page(view(status(shard("shard-1", waits_for=("confirm",)))))).rows
    assert ["shard-1", "2.0 s", "", "waits for confirm", "host/1/worker", "0", "0", "3"] in rows


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
    assert {a["action"] for tag, a in reader.tags if tag == "form"} == {"/"}
    assert "url(" not in CSS
    assert "@import" not in CSS
    assert re.fullmatch(
        r"default-src 'none'; form-action 'self'; style-src 'sha256-[\w+/]{43}='", POLICY
    )


def test_the_page_comes_back_by_itself_and_fits_a_phone():
    tags = Reader(page(view())).tags
    assert ("meta", {"http-equiv": "refresh", "content": "10;url=/"}) in tags
    assert any(a.get("name") == "viewport" for tag, a in tags if tag == "meta")
    assert "prefers-color-scheme: dark" in CSS


def test_nothing_asks_for_more_room_than_a_small_phone_has_and_large_screens_are_used():
    widths = re.findall(r"(?:min-width|minmax\()[: ]*(\d+)px", re.sub(r"@media[^{]*", "", CSS))
    assert widths
    assert max(map(int, widths)) <= 360 - 2 * 16, "a phone of 360 pixels, with the page's margins"
    assert "overflow-x: auto" in CSS, "tables that are wider are moved for themselves"
    assert "max(1120px, 80vw)" in CSS
    assert "@media (min-width: 2400px)" in CSS


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


# -- an hour of numbers ----------------------------------------------------------------------------


def hour(points=POINTS + 40, **values):
    kept = History()
    for number in range(points):
        noted = {name: value(number) for name, value in values.items()}
        kept.note(1_000 + number * STEP_SECONDS, noted, {"total": 30.0 * number})
    return kept


def test_more_than_an_hour_is_kept_and_then_the_oldest_is_overwritten():
    kept = hour(lag=float)
    found = kept.points("lag")
    assert len(found) == POINTS
    assert [value for _, value in found] == [float(n) for n in range(40, POINTS + 40)]
    assert found[-1][0] - found[0][0] >= 3600
    assert [at for at, _ in found] == sorted(at for at, _ in found)


def test_totals_are_kept_as_what_they_grow_by_in_a_second():
    assert [value for _, value in hour().points("total")] == [2.0] * POINTS


def test_what_is_not_known_is_left_out_and_forgotten_names_take_no_room():
    kept = hour(POINTS + 1, gone=lambda n: 1.0 if n < 5 else float("nan"))
    assert len(kept.points("gone")) == 4, "the first was overwritten"
    for number in range(2 * POINTS):
        kept.note(1e6 + number, {"other": 1.0}, {})
    assert kept.points("gone") == ()
    assert list(kept._values) == ["other"]


def test_charts_show_the_last_hour_of_each_consumer_shard_and_handler():
    kept = History()
    for number in range(20):
        lag = float(number % 7)
        values = {"deals:lag": lag, "deals:shard:shard-1": lag, "deals:notify:behind": lag}
        totals = {"deals:changes": 60.0 * number, "deals:notify:changes": 60.0 * number}
        kept.note(number * STEP_SECONDS, values, totals)
    text = page(view(status(shard("shard-1"))), asked=Asked(history=kept))
    for label in (
        *("seconds behind, last hour", "changes a second, last hour", "seconds behind, shard-1"),
        *("seconds, notify", "a second, notify"),
    ):
        assert f"<title>{label}</title>" in text
    assert "up to 6.0" in text
    assert "<b>4.0</b><span>changes a second, here</span>" in text
    Reader(text)


def test_a_backlog_that_shrinks_says_beside_the_lag_when_all_is_read():
    kept = History()
    for number in range(21):  # it shrinks by 100 seconds in 15
        kept.note(number * STEP_SECONDS, {"deals:lag": 3000.0 - 100 * number}, {})
    late = WorkerReport("deals", "active", {"shard-1": 1000.0})
    text = page(view(report=late), asked=Asked(history=kept))
    assert "<span>behind, here; all is read in 2 min 30 s</span>" in text
    assert "<span>behind, here</span>" in page(view(report=late), asked=Asked())


# -- what only a token opens -----------------------------------------------------------------------

TOKEN = "a-token-of-enough-letters"
PARKED = Parked(
    *("queue-1", "notify", "Deal", "shard-1", "7", 0), error="ValueError", detail="SECRET"
)


def logged_in(**headers):
    word = base64.b64encode(f"ann:{TOKEN}".encode()).decode()
    return {"authorization": f"Basic {word}", "host": "here:8080"} | headers


def form(headers, **fields):
    return BrowserRequest("/", "POST", headers=headers, body=urlencode(fields))


def test_without_a_token_all_may_look_and_none_may_act():
    gate = Gate()
    assert gate.admits(BrowserRequest("/"))
    assert not gate.lets_act(form({}, act="pause", proof=""))
    text = page(view(status(shard("s"), parked={"notify": 1}), parked=[PARKED]))
    assert "pause" not in text
    assert "redrive" not in text


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Basic YW5uOng=", "Bearer x", "Digest a", "Basic \xff"]
)
def test_a_page_with_a_token_is_shown_to_those_who_have_it(header):
    gate = Gate(TOKEN)
    assert not gate.admits(BrowserRequest("/", headers={"authorization": header}))
    assert gate.admits(BrowserRequest("/", headers=logged_in()))
    assert gate.admits(BrowserRequest("/", headers={"authorization": f"Bearer {TOKEN}"}))


def test_an_action_needs_the_token_a_form_of_the_page_and_a_browser_that_came_from_it():
    gate = Gate(TOKEN)
    assert gate.lets_act(form(logged_in(), act="pause", proof=gate.proof))
    own = {"origin": "http://here:8080", "sec-fetch-site": "same-origin"}
    assert gate.lets_act(form(logged_in(**own), act="pause", proof=gate.proof))
    assert not gate.lets_act(form(logged_in(), act="pause"))
    assert not gate.lets_act(form(logged_in(), act="pause", proof="x" * 64))
    assert not gate.lets_act(form({}, act="pause", proof=gate.proof))
    foreign = ({"sec-fetch-site": site} for site in ("cross-site", "same-site"))
    for header in ({"origin": "http://evil"}, *foreign):
        assert not comes_from_here(form(logged_in(**header)))
        assert not gate.lets_act(form(logged_in(**header), act="pause", proof=gate.proof))
    assert TOKEN not in gate.proof


def test_errors_stand_behind_a_click_and_their_texts_behind_the_token():
    found = view(status(shard("s"), parked={"notify": 1}), parked=[PARKED])
    assert "ValueError" not in page(found)
    opened = page(found, asked=Asked(errors="deals"))
    assert ["notify", "queue-1", "ValueError", "", "0"] in Reader(opened).rows
    assert "SECRET" not in opened
    known = page(found, asked=Asked(errors="deals", proof="proof"))
    assert ["notify", "queue-1", "ValueError", "SECRET", "0"] in Reader(known).rows


def test_actions_carry_the_proof_and_name_what_they_act_on():
    tags = Reader(page(view(status(parked={"notify": 1})), asked=Asked(proof="p"))).tags
    hidden = [(a["name"], a["value"]) for tag, a in tags if a.get("type") == "hidden"]
    assert {("act", "pause"), ("act", "redrive"), ("consumer", "deals"), ("handler", "notify")} <= {
        *hidden
    }
    assert hidden.count(("proof", "p")) == 2
    paused = page(view(report=WorkerReport("deals", "active", paused=1)), asked=Asked(proof="p"))
    assert 'value="resume"' in paused


def test_a_search_shows_an_item_by_its_hash_and_the_state_of_each_handler():
    waits = (Waiting("1", "ValueError", 3, 0),)
    facts = dict.fromkeys(Explanation.__dataclass_fields__)
    listening = (Listening("deals", "notify", (), None, "", "queue-1", "stuck", parked=waits),)
    known = {"entity": "Deal", "digest": "ab12", "exists": True, "attributes": ("number",)}
    found = Explanation(**facts | known | {"listening": listening})
    text = page(view(status()), asked=Asked(explained=found))
    assert "Deal, hash ab12: 1 attributes." in text
    assert ["deals/notify", "stuck", "queue-1", "1", "ValueError"] in Reader(text).rows
    assert "refresh" not in {a.get("http-equiv") for _, a in Reader(text).tags}
    assert "no such key" in page(view(status()), asked=Asked(explained="no such key"))


def test_writes_are_shared_out_by_the_effects_of_each_handler():
    spending = Spending("deals", 1, 900, {"read": 0.0, "write": 4e6, "stream": 0.0}, 0.2)
    handlers = [HandlerView(h, 5, 0.01, 4, effects) for h in app.handlers for effects in (3, 1)]
    found = ConsumerView(WorkerReport("deals", "active"), handlers, status(), spending)
    rows = Reader(page(found)).rows
    assert [row[10] for row in rows if row[0] == "notify"] == ["about $1.88", "about $0.62"]
    assert "a day \u00b120%" in page(found)


def test_an_archive_says_how_many_shards_it_has_copied_up_to_now():
    report = WorkerReport("deals.archive", "active", {"a": 1.0, "b": 900.0})
    text = page(ConsumerView(report, (), status(), copies=True))
    assert "1 of 2 shards read here are stored up to now" in text
    assert ("progress", {"max": "1", "value": "0.500", "title": "50.0%"}) in Reader(text).tags
