"""The health server: strangers get what is for them, and nothing that holds it up or breaks it."""

import asyncio
import io
import json
import logging

import pytest
import structlog

from streamkit.observe.logs import configure
from streamkit.operate.status_page import server
from streamkit.operate.status_page.server import PageReply, serving
from streamkit.settings import read_address

LARGE = 30_000_000
"""Bytes: more than a connection has room for on its way."""


async def answer(request):
    path = request.path
    if request.method == "POST":
        return PageReply(200, f"{sorted(request.form.items())}\n")
    if path == "/broken":
        raise RuntimeError("a defect")
    if path == "/hangs":
        await asyncio.Event().wait()
    if path == "/large":
        return PageReply(200, "x" * LARGE)
    return PageReply(200, f"you asked for {path}\n")


@pytest.fixture
async def address():
    async with serving("127.0.0.1:0", answer) as bound:
        yield bound


async def ask(address, sent):
    """Send bytes; return the status, headers and body of the reply, None if there was none."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    try:
        whole = await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        return None
    finally:
        writer.close()
    if not whole:
        return None
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def get(path, method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


async def test_a_path_is_answered_without_its_query_and_the_connection_ends(address):
    status, headers, body = await ask(address, get("/livez?verbose=1"))
    assert (status, body) == (200, b"you asked for /livez\n")
    assert headers["content-length"] == str(len(body))
    assert headers["connection"] == "close"


async def test_no_reply_lets_a_browser_load_or_keep_anything(address):
    for path in ("/", "/broken"):
        _, headers, _ = await ask(address, get(path))
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


async def test_head_is_as_get_without_the_body(address):
    status, headers, body = await ask(address, get("/livez", "HEAD"))
    assert (status, headers["content-length"], body) == (200, "21", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
async def test_every_other_method_is_refused(address, method):
    status, headers, _ = await ask(address, get("/livez", method))
    assert (status, headers["allow"]) == (405, "get, head")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
    ids=["words", "version 0.9", "version 2", "proxy", "bytes", "long"],
)
async def test_what_is_no_request_is_refused(address, sent, status):
    found, _, _ = await ask(address, sent)
    assert found == status


async def test_who_goes_away_in_the_middle_harms_nobody(address):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET / HT")
    writer.write_eof()
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    _, writer = await asyncio.open_connection(*address)
    writer.transport.abort()
    assert (await ask(address, get("/")))[0] == 200


async def test_who_sends_a_byte_now_and_then_is_cut_off(monkeypatch, address):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET / HTTP/1.1\r\nX: ")
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()


async def test_who_does_not_read_the_reply_is_cut_off(monkeypatch, address):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection(*address, limit=1000)
    writer.write(get("/large"))
    await asyncio.sleep(0.3)  # it is the time that passes
    got = 0
    try:
        while chunk := await asyncio.wait_for(reader.read(1_000_000), 30):
            got += len(chunk)  # what is buffered on the way still comes
    except ConnectionError:
        pass
    writer.close()
    assert got < LARGE


async def test_only_so_many_connections_are_served_at_once(monkeypatch, address):
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 2)
    held = [await asyncio.open_connection(*address) for _ in range(2)]
    for _, writer in held:
        writer.write(get("/hangs"))
    refused = [await ask(address, get("/livez")) for _ in range(3)]
    assert refused[-1] is None
    for _, writer in held:
        writer.close()


@pytest.fixture
def log():
    stream, root = io.StringIO(), logging.getLogger()
    before, level = list(root.handlers), root.level
    configure("json", stream=stream)
    yield stream
    structlog.reset_defaults()
    root.handlers, root.level = before, level


async def test_a_defect_is_a_500_and_what_it_says_stays_out_of_the_reply(log, address):
    status, _, body = await ask(address, get("/broken"))
    assert (status, body) == (500, b"internal server error\n")
    *_, line = [json.loads(text) for text in log.getvalue().splitlines()]
    assert (line["event"], line["path"]) == ("health.failed", "/broken")
    assert (await ask(address, get("/livez")))[0] == 200


async def test_what_takes_too_long_is_a_503(monkeypatch, address):
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.05)
    status, _, _ = await ask(address, get("/hangs"))
    assert status == 503


async def test_at_the_end_open_connections_are_broken_off():
    async with serving("127.0.0.1:0", answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(get("/hangs"))
        assert (await ask(address, get("/livez")))[0] == 200
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(*address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", ":8080", "host", "host:", "::1:80", "h:65536", "h:-1", "h:²", "[]:1"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        read_address(text)


def post(body, path="/", kind="application/x-www-form-urlencoded", length=None):
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


async def test_a_form_is_taken_by_the_page_and_by_nothing_else(address):
    status, _, body = await ask(address, post(b"pk=a%23b&sk=c+d"))
    assert (status, body) == (200, b"[('pk', 'a#b'), ('sk', 'c d')]\n")
    assert (await ask(address, post(b"pk=a", "/metrics")))[0] == 405


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post(b"{}", kind="application/json"), 415),
        (post(b"pk=a", length="many"), 411),
        (post(b"pk=a", length=9_000_000_000), 413),
        (post(b"pk=" + b"a" * 9000), 413),
        (post(b"pk=\xff"), 400),
    ],
    ids=["json", "no length", "huge", "long", "bytes"],
)
async def test_a_form_that_is_none_is_refused(address, sent, status):
    found, _, _ = await ask(address, sent)
    assert found == status
