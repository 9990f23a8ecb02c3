"""Which authorities the SDK's connections trust: loaded once for all clients of a process."""

from unittest import mock

import pytest
from botocore.exceptions import EndpointConnectionError

from streamkit import aws
from streamkit.model.sdk import sessions
from tests.authority import one_authority

NOBODY = "http://127.0.0.1:9"  # the port of `discard`, where nothing listens


@pytest.fixture
def loaded(monkeypatch):
    """The files that were loaded while a test runs, with the contexts."""
    for name, value in {"ACCESS_KEY_ID": "local", "SECRET_ACCESS_KEY": "local"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_CA_BUNDLE", one_authority())
    monkeypatch.setattr(aws, "_retries", lambda _: {"mode": "standard", "total_max_attempts": 1})
    found, load = [], sessions.create_urllib3_context
    sessions._trust.cache_clear()

    def counted():
        found.append(load())
        return found[-1]

    with mock.patch.object(sessions, "create_urllib3_context", counted):
        yield found
    sessions._trust.cache_clear()


async def call_all():
    async with aws.connect(endpoint_url=NOBODY, region="us-east-1") as clients:
        for client in (clients.dynamodb, clients.beats):
            with pytest.raises(EndpointConnectionError):
                await client.list_tables()
        with pytest.raises(EndpointConnectionError):
            await clients.streams.list_streams()


async def test_the_clients_of_a_process_load_their_authorities_once(loaded):
    await call_all()
    await call_all()
    assert len(loaded) == 1
    assert len(loaded[0].get_ca_certs()) == 1


async def test_another_bundle_is_loaded_beside_the_first(loaded, monkeypatch):
    await call_all()
    monkeypatch.delenv("AWS_CA_BUNDLE")
    await call_all()
    assert len(loaded) == 2
    assert len(loaded[1].get_ca_certs()) > 1
