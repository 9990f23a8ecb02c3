"""Places: where changes go, one sink for each kind of place.

In: addresses, from variables such as `RELAY_QUEUE_URL`. Out: the sinks. On failure: settings that
are no addresses raise `DeclarationError`.
"""

from dataclasses import dataclass, fields
from typing import Any

from pydantic_settings import BaseSettings, SettingsConfigDict

from streamkit import (
    EventBridge,
    Firehose,
    Kinesis,
    S3Archive,
    Search,
    Sns,
    SqlTable,
    Sqs,
    Webhook,
)

_ACCOUNT = "123456789012"


class Addresses(BaseSettings):
    """The addresses of everything outside; the defaults are only examples."""

    model_config = SettingsConfigDict(env_prefix="RELAY_")

    queue_url: str = f"https://sqs.eu-central-1.amazonaws.com/{_ACCOUNT}/orders.fifo"
    topic_arn: str = f"arn:aws:sns:eu-central-1:{_ACCOUNT}:shipped"
    bus: str = "shop"
    stream: str = "orders-live"
    lake: str = "orders-lake"
    bucket: str = "orders-archive"
    database: str = "postgresql+asyncpg://localhost/shop"
    search_url: str = "http://localhost:9200"
    hook_url: str = "https://example.com/hook"
    hook_secret: str = "a secret that both sides know"  # noqa: S105 - an example


@dataclass(frozen=True)
class Places:
    """The sinks, each named as its field is."""

    queue: Sqs
    topic: Sns
    bus: EventBridge
    live: Kinesis
    lake: Firehose
    archive: S3Archive
    rows: SqlTable
    documents: Search
    hook: Webhook

    @classmethod
    def at(cls, addresses: Addresses, *, transport: Any = None) -> "Places":
        """Return the sinks at some addresses; HTTP goes through `transport`, if it is given."""
        return cls(
            queue=Sqs("queue", addresses.queue_url),
            topic=Sns("topic", addresses.topic_arn),
            bus=EventBridge("bus", addresses.bus, source="shop", detail_type="OrderShipped"),
            live=Kinesis("live", addresses.stream),
            lake=Firehose("lake", addresses.lake),
            archive=S3Archive("archive", addresses.bucket, prefix="orders/"),
            rows=SqlTable("rows", addresses.database, "orders"),
            documents=Search("documents", addresses.search_url, "orders", transport=transport),
            hook=Webhook(
                "hook", addresses.hook_url, secret=addresses.hook_secret, transport=transport
            ),
        )

    @property
    def by_name(self) -> dict[str, Any]:
        """Return the sinks by their names."""
        return {place.name: getattr(self, place.name) for place in fields(self)}
