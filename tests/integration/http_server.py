"""A small HTTP/1.1 server on a real socket, whose answers a test decides."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpServer:
    """Answers each request with what `answer(request)` returns: status, headers, body.

    None cuts the connection without an answer; an awaitable is waited for first.
    """

    answer: object
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    tasks: list[asyncio.Task] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader, writer):
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                fields = dict(line.split(": ", 1) for line in lines[1:] if line)
                headers = {name.lower(): value for name, value in fields.items()}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(method, path, headers, body))
                answer = self.answer(self.requests[-1])
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer is None:
                    break
                status, headers, body = answer
                named = {"Content-Length": len(body), **headers}
                text = "".join(f"{name}: {value}\r\n" for name, value in named.items())
                writer.write(f"HTTP/1.1 {status} -\r\n{text}\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def http_server(answer):
    """Serve on a free port of this machine."""
    made = HttpServer(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        server.close()
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks)
