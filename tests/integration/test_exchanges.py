"""HTTP exchanges: the short way answers as aiobotocore's own, whatever a server does."""

import asyncio
import re
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiobotocore.httpsession import AIOHTTPSession
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import BotoCoreError, HTTPClientError, SSLError

from streamkit.model.sdk.exchanges import HttpHost
from streamkit.model.sdk.sessions import HttpSession, _trust
from tests.certificates import certificate
from tests.integration.http_server import http_server

HEADERS = {"X-Amz-Target": "DynamoDB_20120810.GetItem", "User-Agent": "ours"}
OK = b"HTTP/1.1 200 OK\r\nX-Amz-Crc32: 7\r\nContent-Length: 4\r\n\r\nbody"
CLOSES = "closes"
"""After the answer, the server closes the connection."""


class Server:
    """Answers each request with the same bytes, in pieces; keeps what it was sent."""

    def __init__(self, *pieces):
        self.pieces, self.connections, self.asked = pieces, 0, []

    async def serve(self, reader, writer):
        self.connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"(?i)content-length: (\d+)", head)[1]
            self.asked.append(head + await reader.readexactly(int(length)))
            for piece in self.pieces:
                if piece is CLOSES:
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)


@asynccontextmanager
async def served(serve, context=None, host="127.0.0.1"):
    """Serve on a free port, whose number is returned; close all connections at the end."""
    tasks = []

    async def noted(reader, writer):
        tasks.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(noted, host, 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


def request(url, body=b"{}", *, method="POST", headers=None, stream=False):
    return AWSPreparedRequest(method, url, headers or dict(HEADERS), body, stream_output=stream)


async def told(session, asked):
    """What a session makes of a request: what the reply says, or the error."""
    try:
        async with asyncio.timeout(5):
            reply = await session.send(asked)
        return reply.status_code, dict(reply.headers), await reply.content, await reply.text
    except BotoCoreError as error:
        return type(error), re.sub(r":\d+", "", str(error))[:50]


@pytest.fixture
def shortly(monkeypatch):
    """Requests that went the short way."""
    sent, real = [], HttpHost.send

    async def send(self, head, body):
        sent.append(head)
        return await real(self, head, body)

    monkeypatch.setattr(HttpHost, "send", send)
    return sent


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n3\r\n ok\r\n0\r\n\r\n"
SCRIPTS = {
    "a reply": (OK,),
    "byte by byte": tuple(OK[at : at + 1] for at in range(len(OK))),
    "a large body": (b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n", b"x" * 900_000),
    "an error": (b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}",),
    "no body": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n",),
    "in chunks": (CHUNKED,),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nbody", CLOSES),
    "of an old server": (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", CLOSES),
    "after 'continue'": (b"HTTP/1.1 100 Continue\r\n\r\n", OK),
    "packed": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbody",),
    "closed without a word": (CLOSES,),
    "cut off in its head": (OK[:20], CLOSES),
    "cut off in its body": (OK[:-2], CLOSES),
    "cut off in a chunk": (CHUNKED[:-14], CLOSES),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", CLOSES),
    "a wrong length": (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nbody", CLOSES),
    "silence": (),
    "silence in its body": (OK[:-2],),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_reply_means_the_same_on_both_ways(name, shortly):
    found = []
    for kind in (HttpSession, AIOHTTPSession):
        async with served(Server(*SCRIPTS[name]).serve) as port, kind(timeout=(1, 0.2)) as session:
            found.append(await told(session, request(f"http://127.0.0.1:{port}/")))
    assert found[0] == found[1]
    assert len(shortly) == 1


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nobody.invalid"])
async def test_a_host_that_cannot_be_reached_is_the_same_error_on_both_ways(host, shortly):
    found = []
    for kind in (HttpSession, AIOHTTPSession):
        async with kind(timeout=1) as session:
            found.append(await told(session, request(f"http://{host}/")))
    assert found[0] == found[1]
    assert len(shortly) == 1


@pytest.mark.parametrize("kind", [HttpSession, AIOHTTPSession])
async def test_a_host_that_does_not_take_connections_times_out(kind, monkeypatch):
    async def never(self, *arguments, **options):
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
    async with kind(timeout=(0.05, 1)) as session:
        what, text = await told(session, request("http://127.0.0.1:9/"))
    assert what.__name__ == "ConnectTimeoutError"
    assert text.startswith("Connect timeout on endpoint URL")


async def test_a_request_says_what_aiobotocore_would_say():
    sent = []
    for kind in (HttpSession, AIOHTTPSession):
        server = Server(OK)
        async with served(server.serve) as port, kind() as session:
            headers = HEADERS | {"Authorization": b"AWS4", "Content-Length": "10"}
            asked = request(f"http://127.0.0.1:{port}/", '{"a":"ö"}'.encode(), headers=headers)
            await session.send(asked)
        head, _, body = server.asked[0].replace(str(port).encode(), b"PORT").partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        said = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines}
        sent.append((first, said, body))
    assert sent[1][1].pop("accept") == "*/*"
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("another method", {"method": "PUT"}),
        ("a reply that is read in pieces", {"stream": True}),
        ("a text", {"body": "{}"}),
        ("a header of two lines", {"headers": {"X-Amz-Security-Token": "a\nb"}}),
    ],
)
async def test_what_is_no_plain_request_goes_the_ordinary_way(what, changed, shortly):
    async with served(Server(OK).serve) as port, HttpSession() as session:
        url = f"http://127.0.0.1:{port}/"
        assert (await told(session, request(url)))[0] == 200
        found = await told(session, request(url, **changed))
        assert len(shortly) == 1
    assert found == (200, {"x-amz-crc32": "7", "content-length": "4"}, b"body", "body") or (
        "two lines" in what and found[0] is HTTPClientError
    )


@pytest.mark.parametrize("path", ["/queue", "/?x=1", "//"])
async def test_a_path_goes_the_ordinary_way(path, shortly):
    async with served(Server(OK).serve) as port, HttpSession() as session:
        assert (await told(session, request(f"http://127.0.0.1:{port}{path}")))[0] == 200
    assert shortly == []


async def test_a_tool_that_traces_requests_sees_each_of_them(monkeypatch, shortly):
    seen = []

    async def began(session, context, params):
        seen.append(params.method)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_start.append(began)
    real = aiohttp.ClientSession.__init__

    def traced(self, *arguments, **options):
        real(self, *arguments, trace_configs=[tracing], **options)

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", traced)
    async with served(Server(OK).serve) as port, HttpSession() as session:
        await session.send(request(f"http://127.0.0.1:{port}/"))
    assert seen == ["POST"]
    assert shortly == []


async def test_a_proxy_is_asked_and_a_host_without_one_is_not(shortly):
    async with http_server(lambda asked: (200, {}, b"of the proxy")) as proxy:
        proxies = {"http": proxy.url}
        async with served(Server(OK).serve) as port, HttpSession(proxies=proxies) as session:
            found = await told(session, request(f"http://127.0.0.1:{port}/"))
    assert found[2] == b"of the proxy"
    assert shortly == []


async def test_a_connection_is_used_again_and_one_that_was_left_is_not():
    server = Server(OK)
    async with served(server.serve) as port, HttpSession() as session:
        asked = request(f"http://127.0.0.1:{port}/")
        for _ in range(3):
            await session.send(asked)
        assert server.connections == 1
        pieces, server.pieces = server.pieces, ()
        task = asyncio.create_task(session.send(asked))
        while len(server.asked) < 4:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        server.pieces = pieces
        assert (await told(session, asked))[2] == b"body"  # not the reply to the one before
    assert server.connections == 2


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used():
    server = Server(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", CLOSES)
    async with served(server.serve) as port, HttpSession() as session:
        for _ in range(3):
            assert (await told(session, request(f"http://127.0.0.1:{port}/")))[0] == 200
    assert server.connections == 3


async def test_no_more_connections_are_opened_than_allowed_and_each_call_ends():
    server = Server(OK)
    async with served(server.serve) as port, HttpSession(max_pool_connections=2) as session:
        asked = [session.send(request(f"http://127.0.0.1:{port}/")) for _ in range(20)]
        replies = await asyncio.gather(*asked)
    assert [reply.status_code for reply in replies] == [200] * 20
    assert server.connections == 2


async def test_a_session_that_was_closed_forgets_its_hosts(shortly):
    session = HttpSession()
    async with served(Server(OK).serve) as port:
        async with session:
            await session.send(request(f"http://127.0.0.1:{port}/"))
            assert session._hosts
        assert not session._hosts


@pytest.fixture
def other(tmp_path):
    """A server's side of TLS, with a certificate for 127.0.0.2 that is its own authority."""
    key, authority = certificate(tmp_path, "127.0.0.2")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, key)
    yield context, str(authority)
    _trust.cache_clear()


@pytest.mark.parametrize("body", [b"{}", "{}"], ids=["short", "ordinary"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_a_certificate_is_accepted_only_of_its_host(other, host, body, shortly):
    context, authority = other
    far = served(Server(OK).serve, context, host)
    async with far as port, HttpSession(verify=authority) as session:
        found = await told(session, request(f"https://{host}:{port}/", body))
    assert found[0] == (200 if host == "127.0.0.2" else SSLError)
    assert len(shortly) == (body == b"{}")


async def test_an_unknown_authority_is_not_trusted(other):
    context, _ = other
    async with served(Server(OK).serve, context, "127.0.0.2") as port, HttpSession() as session:
        found = await told(session, request(f"https://127.0.0.2:{port}/"))
    assert found[0] is SSLError


async def tunnel(reader, writer):
    """A proxy that connects to where it is asked to, and passes on what comes."""
    host, _, port = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().partition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    async def pass_on(source, to):
        while data := await source.read(65536):
            to.write(data)
        to.close()

    try:
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
    finally:
        far_writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_a_certificate_behind_a_proxy_is_accepted_only_of_its_host(other, host):
    context, authority = other
    async with served(Server(OK).serve, context, host) as port, served(tunnel) as near:
        proxies = {"https": f"http://127.0.0.1:{near}"}
        async with HttpSession(proxies=proxies, verify=authority) as session:
            found = await told(session, request(f"https://{host}:{port}/"))
    assert found[0] == (200 if host == "127.0.0.2" else SSLError)
