"""Logs are structured, their events are catalogued, and item data stays out of them."""

import dataclasses
import errno
import io
import json
import logging
from unittest import mock

import msgspec
import pydantic
import pytest
import structlog
from botocore.exceptions import ClientError

import streamkit
from streamkit.observe import logs
from streamkit.observe.events import ACTIONS, EVENTS
from streamkit.observe.logs import LEVELS, configure
from streamkit.observe.redaction import redact, traceback_text
from streamkit.observe.repeats import EVERY_SECONDS
from streamkit.testing import Harness
from tests.log_reference import PAGE, logged, page

SECRET = "4111-1111"


@pytest.fixture
def out():
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield stream
    structlog.reset_defaults()
    root.handlers, root.level = before, level


def client_error():
    response = {
        "Error": {"Code": "TransactionCanceledException", "Message": f"item {SECRET}"},
        "CancellationReasons": [{"Item": {"card": {"S": SECRET}}}],
    }
    return ClientError(response, "TransactWriteItems")


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_event_that_is_logged_is_in_the_catalogue_and_no_other():
    assert logged().keys() == EVENTS.keys()


def test_every_event_that_is_more_than_news_says_what_to_do():
    levels = logged()
    news = {name for name in EVENTS if levels[name] <= {"info", "debug"}}
    assert ACTIONS.keys() == EVENTS.keys() - news


def test_the_page_of_log_events_is_what_the_code_says():
    assert PAGE.read_text() == page(), "make pages"


def test_json_lines_carry_time_level_event_and_logger_first(out):
    configure("json", stream=out)
    structlog.get_logger("streamkit.worker").info("worker.started", app="deals")
    (line,) = lines(out)
    assert list(line) == ["timestamp", "level", "event", "logger", "app"]
    assert (line["level"], line["logger"]) == ("info", "streamkit.worker")


def test_auto_means_json_where_there_is_no_terminal(out):
    configure("auto", stream=out)
    structlog.get_logger("streamkit.worker").info("worker.started")
    assert lines(out)[0]["event"] == "worker.started"


def test_a_person_gets_text(out):
    configure("console", stream=out)
    structlog.get_logger("streamkit.worker").info("worker.started", app="deals")
    assert "worker.started" in out.getvalue()
    assert "app=deals" in out.getvalue()


def test_what_is_below_the_level_is_not_written(out):
    configure("json", "warning", stream=out)
    structlog.get_logger("streamkit.worker").info("worker.started")
    assert out.getvalue() == ""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), BrokenPipeError()])
def test_a_line_that_cannot_be_written_is_dropped_and_ends_no_worker(
    out, monkeypatch, level, error
):
    configure("json", "debug", stream=out)
    log = structlog.get_logger("streamkit.test")
    with monkeypatch.context() as patch:
        patch.setattr(out, "write", mock.Mock(side_effect=error))
        getattr(log, level)("it.happened")
    log.info("it.goes_on")
    assert [line["event"] for line in lines(out)] == ["it.goes_on"]


def test_an_event_that_is_asked_for_by_name_is_written_below_the_level(out):
    configure("json", "error", stream=out, besides=("aws.repeated",))
    log = structlog.get_logger("streamkit.aws")
    log.warning("fleet.starved")
    log.warning("aws.repeated", code="ThrottlingException")
    log.error("worker.crashed")
    assert [line["event"] for line in lines(out)] == ["aws.repeated", "worker.crashed"]


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_format_or_level_is_refused(form, level, out):
    with pytest.raises(ValueError, match="none of"):
        configure(form, level, stream=out)


def test_the_warnings_of_other_libraries_take_the_same_form_and_their_chatter_is_left_out(out):
    configure("json", stream=out)
    configure("json", stream=out)
    logging.getLogger("asyncio").warning("slow %s", "callback")
    logging.getLogger("botocore").info("found credentials")
    (line,) = lines(out)
    assert (line["event"], line["logger"], line["level"]) == ("slow callback", "asyncio", "warning")


def test_a_line_of_another_library_comes_once_a_minute_and_says_how_often_it_came(out, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(logs, "monotonic", lambda: now)
    configure("json", stream=out)
    library = logging.getLogger("botocore.credentials")
    for _ in range(9):
        library.warning("Refreshing %s failed", "credentials")
    library.warning("Refreshing %s failed", "a token")
    now += EVERY_SECONDS
    library.warning("Refreshing %s failed", "credentials")
    library.warning("Refreshing %s failed", "credentials")
    assert [line["event"] for line in lines(out)] == [
        "Refreshing credentials failed",
        "Refreshing a token failed",
        "Refreshing credentials failed (8 more since the line before)",
    ]


def test_texts_of_other_libraries_without_end_take_no_memory_without_end(out):
    configure("json", stream=out)
    for number in range(1000):
        logging.getLogger("library").warning("connection %d was lost", number)
    (handler,) = [one for one in logging.getLogger().handlers if isinstance(one, logs.OwnHandler)]
    assert len(lines(out)) == 1000
    assert len(handler._written) <= 100


@pytest.mark.parametrize("name", ["item", "image", "record", "old", "new", "keys", "Item"])
def test_values_under_names_of_data_are_dropped_at_any_depth(name):
    event = {"event": "x", name: SECRET, "reasons": [{"Code": "None", name: {"card": SECRET}}]}
    cleaned = redact(None, "info", event)
    assert SECRET not in json.dumps(cleaned)
    assert cleaned["reasons"][0]["Code"] == "None"


@pytest.mark.parametrize("name", ["items", "images", "records", "keys", "Records"])
def test_a_number_under_a_name_of_several_things_counts_them_and_is_kept(name):
    cleaned = redact(None, "info", {"event": "batch.partial", name: 3, "of": [{name: 2.5}]})
    assert cleaned == {"event": "batch.partial", name: 3, "of": [{name: 2.5}]}


@pytest.mark.parametrize("name", ["item", "image", "record", "old", "new"])
@pytest.mark.parametrize("value", [4111, 4.5, True, None, "4111"])
def test_a_number_under_the_name_of_one_thing_is_its_value_and_is_dropped(name, value):
    assert redact(None, "info", {name: value})[name] == "[redacted]"


@pytest.mark.parametrize("value", [True, None, "3", [3], {"n": 3}, b"3"])
def test_under_a_name_of_several_things_only_a_number_is_kept(value):
    assert redact(None, "info", {"records": value})["records"] == "[redacted]"


class Card(pydantic.BaseModel):
    number: str


@dataclasses.dataclass
class Wallet:
    card: str


class Purse(msgspec.Struct):
    card: str


@pytest.mark.parametrize(
    "value",
    [
        {"S": SECRET},
        {"M": {"card": {"S": SECRET}}},
        {"card": {"S": SECRET}},
        [{"N": SECRET}],
        Card(number=SECRET),
        Wallet(SECRET),
        Purse(SECRET),
        (Wallet(SECRET),),
    ],
    ids=lambda value: type(value).__name__,
)
def test_data_is_dropped_by_what_it_is_whatever_it_is_called(value):
    assert SECRET not in repr(redact(None, "info", {"event": "x", "result": value}))


def test_what_is_no_data_is_left_as_it_is():
    event = {"event": "x", "shards": 3, "seconds": 0.5, "lane": "a1", "S": 3, "errors": {"E": 2}}
    assert redact(None, "info", event) == event


def test_an_exception_of_the_sdk_is_logged_by_its_code(out):
    configure("json", stream=out)
    log = structlog.get_logger("streamkit.worker")
    log.warning("x", error=client_error())
    try:
        raise client_error()
    except ClientError as error:
        try:
            raise RuntimeError("wrapped") from error
        except RuntimeError:
            log.exception("y")
            logging.getLogger("other").exception("z")
    assert SECRET not in out.getvalue()
    first, second, third = lines(out)
    assert first["error"] == "ClientError: TransactionCanceledException"
    for line in (second, third):
        assert "ClientError: TransactionCanceledException" in line["exception"]
        assert "RuntimeError: wrapped" in line["exception"]


def test_a_traceback_shows_the_members_of_a_group_and_ends_with_loops():
    looped = ValueError("outer")
    looped.__context__ = inner = KeyError("inner")
    inner.__context__ = looped
    text = traceback_text(ExceptionGroup("several", [looped, client_error()]))
    assert "ValueError: outer" in text
    assert SECRET not in text


class Order(streamkit.Entity, pk="ORDER#{number}", sk="ORDER"):
    number: str


def broken_app():
    app = streamkit.App("shop", table="Shop")

    def total_of(order):
        return 1 / int(order.number)

    @app.on
    def plain(change: streamkit.Inserted[Order]) -> None:
        total_of(change.new)

    @app.on(attempts=2)
    async def awaited(change: streamkit.Inserted[Order]) -> None:
        total_of(change.new)

    return app


@pytest.mark.parametrize("level", ["debug", "info"])
def test_the_traceback_of_the_users_frames_is_logged_at_the_level_debug_alone(level, out):
    with Harness(broken_app()) as harness:
        configure("json", level, stream=out)
        harness.put(Order(number="0"))
        harness.settle(parks=True)
        harness.stop()
    raised = [line for line in lines(out) if line["event"] == "handler.raised"]
    if level == "info":
        assert raised == []
        return
    assert {line["handler"] for line in raised} == {"plain", "awaited"}
    for line in raised:
        text = line["exception"]
        assert "return 1 / int(order.number)" in text
        assert text.endswith("ZeroDivisionError: division by zero")
        assert f"in {line['handler']}" in text
        assert "streamkit/core" not in text
        assert "asyncio" not in text


def test_a_traceback_has_causes_first_and_nothing_that_was_suppressed():
    def chained(hidden):
        try:
            try:
                raise OSError("inner")
            except OSError as error:
                raise ValueError("outer") from (None if hidden else error)
        except ValueError as error:
            return traceback_text(error)

    shown = chained(hidden=False)
    assert shown.index("OSError: inner") < shown.index("The above led to:")
    assert shown.endswith("ValueError: outer")
    assert "OSError: inner" not in chained(hidden=True)
    assert "The above led to:" not in chained(hidden=True)
