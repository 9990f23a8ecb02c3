"""Sessions of the SDK: what opens its clients. The only import of aioboto3.

aioboto3 stands between aiobotocore and the application; streamkit takes from it only its session,
and where it is not installed, aiobotocore's own. What is costly to make is made once for all
sessions of a process: botocore's models of services, and the authorities that connections trust.
The calls that are made all the time take a shorter way through botocore, see `frequent_calls`.
"""

import gzip
import inspect
import os
import ssl
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.httpsession import create_urllib3_context, get_cert_path
from botocore.loaders import JSONFileLoader, Loader

try:
    import aioboto3
except ImportError:  # installed from requirements-aiobotocore.txt
    aioboto3 = None

from streamkit.model.sdk.exchanges import HttpHost
from streamkit.model.sdk.frequent_calls import ParserFactory, make_short


class _Services(Mapping[str, Any]):
    """The endpoints of each service of a partition, which are decoded when they are asked for."""

    def __init__(self, packed: bytes | msgspec.Raw) -> None:
        self._packed = msgspec.json.decode(packed, type=dict[str, msgspec.Raw])

    def __getitem__(self, name: str) -> Any:
        return msgspec.json.decode(self._packed[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


class _Models(JSONFileLoader):  # type: ignore[misc]
    """Loads botocore's models of services, and its list of endpoints, which has over a megabyte.

    In plain dictionaries they take 3 MB less than in botocore's ordered ones, and a third of its
    time, which a command and a cold function would wait for. The list of endpoints would still take
    4 MB; packed it takes 0.7, because a process needs few of its 300 services.
    """

    def load_file(self, file_path: str) -> Any:
        """Return what a file holds; its path comes without its ending. None if there is none."""
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            path = Path(file_path + ending)
            if path.is_file():
                with opened(path, "rb") as file:
                    text = file.read()
                is_endpoints = path.name.startswith("endpoints.")
                return _endpoints(text) if is_endpoints else msgspec.json.decode(text)
        return None


def _endpoints(text: bytes) -> dict[str, Any]:
    """Return the list of endpoints as botocore reads it, whose services are packed."""
    packed = msgspec.json.format(text, indent=-1)
    found: dict[str, Any] = msgspec.json.decode(packed, type=dict[str, msgspec.Raw])
    partitions = msgspec.json.decode(found.pop("partitions"), type=list[dict[str, msgspec.Raw]])
    return {name: msgspec.json.decode(value) for name, value in found.items()} | {
        "partitions": [
            {
                name: _Services(value) if name == "services" else msgspec.json.decode(value)
                for name, value in partition.items()
            }
            for partition in partitions
        ]
    }


@lru_cache(maxsize=4)
def _loader(data_path: str | None) -> Any:
    """Share botocore's loaded service models between sessions."""
    paths = data_path.split(os.pathsep) if data_path else []
    found = [os.path.expandvars(str(Path(path).expanduser())) for path in paths]
    return Loader(extra_search_paths=found, file_loader=_Models())


@lru_cache(maxsize=4)
def _trust(certificates: str) -> ssl.SSLContext:
    """Load the authorities of a file once for all clients of a process: it takes 15 ms."""
    context: ssl.SSLContext = create_urllib3_context()
    # botocore switches it off, because urllib3 compares names itself; aiohttp leaves it to this.
    context.check_hostname = True
    context.load_verify_locations(certificates)
    return context


_AWAITS_CONNECTOR = inspect.iscoroutinefunction(vars(AIOHTTPSession)["_create_connector"])


async def _at_once(connector: aiohttp.TCPConnector) -> aiohttp.TCPConnector:
    return connector


class HttpSession(AIOHTTPSession):  # type: ignore[misc]
    """The SDK's connections, which share trust, and send plain requests the short way."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._hosts: dict[str, HttpHost] = {}

    def _create_connector(self, proxy_url: str | None) -> Any:
        """Return a connector; from aiobotocore 3 on, something that returns it when awaited.

        It checks certificates behind a proxy, too; aiobotocore 2 does not.
        """
        if not self._verify or self._cert_file or self._proxy_config.settings:
            return super()._create_connector(proxy_url)
        limit, trust = self._max_pool_connections, _trust(get_cert_path(self._verify))
        connector = aiohttp.TCPConnector(limit=limit, ssl=trust, **self._connector_args)
        return _at_once(connector) if _AWAITS_CONNECTOR else connector

    async def send(self, request: Any) -> Any:
        """Send a request; return its reply. A plain request goes the short way, see `exchanges`."""
        host = self._hosts.get(request.url) or await self._host(request.url)
        head = host and host.head(request)
        if host and head:
            return await host.send(head, request.body)
        return await super().send(request)

    async def _host(self, url: str) -> HttpHost | None:
        """Return a sender for a URL; None if its requests go aiobotocore's own way."""
        if self._proxy_config.proxy_url_for(url):
            return None
        try:
            host = HttpHost.of(await self._get_session(None), url)
        except Exception:  # noqa: BLE001 - on the ordinary way, aiobotocore says what is wrong
            return None
        if host is not None:
            self._hosts[url] = host
        return host

    async def __aexit__(self, *error: object) -> None:
        self._hosts.clear()
        await super().__aexit__(*error)


def _session(profile: str | None) -> AioSession:
    session = AioSession(profile=profile)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


def opener() -> Any:
    """Return what opens clients of any service, with the SDK's own configuration."""
    return _opener(_session(None), own_region())


def _opener(session: AioSession, region: str | None) -> Any:
    """Return what opens clients of a session: aioboto3's session, or a function of aiobotocore's.

    Both are called as `open_(service, config=..., **options)`, and return a context manager.
    """
    if aioboto3 is not None:
        return aioboto3.Session(botocore_session=session, region_name=region).client
    own = {"region_name": region}
    return lambda service, **options: session.create_client(service, **own | options)


def table_opener(profile: str | None, region: str | None) -> Any:
    """Return what opens clients of tables and streams, whose frequent calls are short."""
    session = _session(profile)
    session.register_component("response_parser_factory", ParserFactory())
    if str(session.get_config_variable("endpoint_discovery_enabled")).lower() != "true":
        for service in ("dynamodb", "dynamodb-streams"):
            session.register(f"creating-client-class.{service}", make_short)
    return _opener(session, region)


shared_opener = lru_cache(maxsize=4)(table_opener)
"""For clients without keys: making a botocore session takes 10 ms, and they differ in nothing
else."""


def own_region() -> str | None:
    """Return the Region in AWS_REGION, which AWS's hosts set and botocore does not read."""
    return os.environ.get("AWS_REGION")
