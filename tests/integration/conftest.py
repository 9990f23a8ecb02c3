"""What tests against moto share: one server for a module, and clients that find it."""

from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="module")
def endpoint():
    """Return the address of moto's services, which have nothing in them."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # moto keeps one world for a process, and other tests have used the same names.
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def found_by_sdk(endpoint, monkeypatch):
    """Let the SDK find moto by its own variables."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
