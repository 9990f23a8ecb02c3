"""The server offers the engine over loopback HTTP, to other processes and to any AWS SDK.

It speaks the part of HTTP/1.1 that the SDKs use, with keep-alive, on asyncio streams. Replies carry
the checksum that the SDKs verify. `POST /_control/<command>` with a JSON object reaches the
commands of `Control`; `GET /` shows that the server runs. A task deletes expired items. By default
it listens on 127.0.0.1. It checks no signatures and keeps nothing: do not put secrets into it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from itertools import count
from typing import Any, Protocol, Self

import msgspec

from streamkit.local.control import Control, Controllable
from streamkit.local.errors import ApiError
from streamkit.local.http1 import BadRequest, Reply, Request, read_request
from streamkit.local.wire import (
    CONTENT_TYPE,
    Core,
    Response,
    date_text,
    decoded,
    parse_scope,
    parse_target,
)

_CONTROL = "/_control/"
_WEB_PAGE = "the local engine does not answer web pages: this request has an Origin header"
_FAILED = b'{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}'
_READING = ("BatchGet", "Describe", "Get", "List", "Query", "Scan", "TransactGet")
_HEARD_OUT_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Served(Core, Controllable, Protocol):
    """The part of the engine that the server needs."""


class Server:
    """A listening server; `async with` closes it and its connections.

    Attributes:
        host: the address it listens on.
        port: the port, chosen by the system when none was asked for.
        changes: grows with each request that may have changed something.
    """

    def __init__(self, engine: Served) -> None:
        self.host = ""
        self.port = 0
        self.changes = 0
        self._engine = engine
        self._control = Control(engine)
        self._ids = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Return the URL that a client takes as `endpoint_url`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self, host: str, port: int, *, expire_every: float | None) -> None:
        """Begin to listen.

        Raises:
            OSError: the address is in use, or is not an address of this machine.
        """
        self._listener = await asyncio.start_server(self._connected, host, port)
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]
        if expire_every is not None:
            self._spawn(self._tend(expire_every))

    async def aclose(self) -> None:
        """Stop listening and drop the connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()

    def respond(self, request: Request) -> Reply:
        """Answer one request."""
        if request.path.startswith(_CONTROL):
            return self._command(request)
        if request.method == "GET":
            return Reply(200, b"healthy: streamkit local\n", "text/plain")
        if request.method != "POST":
            return Reply(405, b"", "text/plain")
        headers = request.headers
        try:
            _refuse_web_pages(headers)
            service, operation = parse_target(headers.get("x-amz-target"))
            body = decoded(request.body, headers.get("content-encoding"))
        except ApiError as error:
            refusal = Response.of_error(error)
            return self._reply(refusal.status, refusal.body)
        try:
            engine = self._engine.at(*parse_scope(headers.get("authorization")))
            answer = engine.call_bytes(service, operation, body or b"{}")
            self.changes += not operation.startswith(_READING)
        except Exception:  # noqa: BLE001
            # A defect of the engine must fail one call, not end the connection.
            _log.exception("%s failed", operation)
            answer = 500, _FAILED
        return self._reply(*answer)

    def _reply(self, status: int, body: bytes) -> Reply:
        date = date_text(int(self._engine.clock()))
        return Reply(status, body, CONTENT_TYPE, f"{next(self._ids):052X}", date)

    def _command(self, request: Request) -> Reply:
        status, answer = self._commanded(request)
        return Reply(status, msgspec.json.encode(answer), "application/json")

    def _commanded(self, request: Request) -> tuple[int, Any]:
        if request.method != "POST":
            return 405, {"error": "commands are sent with POST"}
        if "origin" in request.headers:
            # Any web page can send a form to this machine, and must not reach the commands.
            return 403, {"error": "commands are not taken from web pages"}
        try:
            arguments = msgspec.json.decode(request.body or b"{}", type=dict[str, Any])
            result = self._control.run(request.path.removeprefix(_CONTROL), arguments)
            self.changes += 1
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            return 400, {"error": str(error)}
        except ApiError as error:
            return error.status, {"error": str(error)}
        return 200, {"result": result}

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio runs this in a task
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await read_request(reader, writer)
            except BadRequest as error:
                refusal = Reply(error.status, str(error).encode(), "text/plain")
                writer.write(refusal.encode(keep_alive=False))
                await _hear_out(reader, writer)
                return
            if request is None:
                return
            writer.write(self.respond(request).encode(keep_alive=request.keep_alive))
            await writer.drain()
            if not request.keep_alive:
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("expired items are deleted no more", exc_info=error)

    async def _tend(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            for engine in self._engine.everywhere():
                for name in list(engine.tables):
                    self.changes += engine.expire(name)
                for stream in engine.streams.all():
                    stream.settle()


async def _hear_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Drop what a client still sends of a request that is refused: many read no reply before.

    A connection that is closed with bytes unread is reset, and the reply with it.
    """
    writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HEARD_OUT_SECONDS):
            while await reader.read(1 << 16):
                pass


def _refuse_web_pages(headers: Mapping[str, str]) -> None:
    # Any web page can send a request to this machine; only browsers send the header `Origin`.
    if "origin" in headers:
        raise ApiError("AccessDeniedException", _WEB_PAGE, status=403)


async def serve(
    engine: Served,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    expire_every: float | None = 1.0,
) -> Server:
    """Start a server for an engine; close it with `async with` or `aclose`.

    Args:
        engine: the engine that answers.
        host: the address to listen on. Anyone who can reach it can do anything with the engine.
        port: the port; 0 lets the system choose.
        expire_every: seconds between two checks for expired items and old records; None for never,
            when the engine's clock is not the real one.
    """
    server = Server(engine)
    await server.start(host, port, expire_every=expire_every)
    return server
