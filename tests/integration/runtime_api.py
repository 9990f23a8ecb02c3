"""Lambda's Runtime API on a socket of this machine, and the real runtime client against it.

It hands out one invocation at a time and waits for its response, as the service does; see AWS's
documentation of custom runtimes for the paths and headers.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.processes import DEADLINE, ROOT

PREFIX = "/2018-06-01/runtime/"
ARN = "arn:aws:lambda:us-east-1:123456789012:function:shop"


class FunctionError(Exception):
    """The function raised; the text is what the runtime client reports of it."""


class RuntimeApi(ThreadingHTTPServer):
    """Serves one execution environment."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.waiting = queue.Queue()
        self.answers = queue.Queue()
        self.count = 0

    def handle_error(self, request, client_address):
        """The client was killed while it waited."""

    def invoke(self, event, seconds=30.0):
        """Return what the function returns, and how long that took in seconds.

        Raises:
            FunctionError: it raised.
        """
        self.count += 1
        began = time.monotonic()
        self.waiting.put((f"request-{self.count}", event, time.time() + seconds))
        kind, answer = self.answers.get(timeout=DEADLINE)
        if kind != f"invocation/request-{self.count}/response":
            raise FunctionError(f"{kind}: {answer}")
        return answer, time.monotonic() - began


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        assert self.path == f"{PREFIX}invocation/next"
        request, event, deadline = self.server.waiting.get()
        # Without a content type the client's native part crashes.
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": request,
            "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": ARN,
            "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Sampled=0",
        }
        self._answer(200, event, headers)

    def do_POST(self):
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else self._chunks()
        self.server.answers.put((self.path.removeprefix(PREFIX), json.loads(body)))
        self._answer(202, {"status": "OK"}, {})

    def _chunks(self):
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status, body, headers):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextmanager
def function(handler, environment, log):
    """Start the runtime client with a handler, `module.name`; it ends with the block."""
    api = RuntimeApi()
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    host, port = api.server_address
    settings = {
        "AWS_LAMBDA_RUNTIME_API": f"{host}:{port}",
        "AWS_LAMBDA_FUNCTION_NAME": "shop",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_LOG_GROUP_NAME": "group",
        "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        "AWS_REGION": "us-east-1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "awslambdaric", handler],
            env=os.environ | environment | settings,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield api
    except BaseException:
        print(log.read_text())
        raise
    finally:
        process.kill()
        process.wait(DEADLINE)
        api.waiting.put(("end", {}, 0))  # lets the request that waits for an invocation go
        api.shutdown()
        thread.join(DEADLINE)
        api.server_close()
