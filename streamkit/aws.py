"""AWS: clients, time-outs, retries and what an error means.

Retries are botocore's own `standard` mode, set explicitly because its defaults changed between
versions. `TransactionCanceledException` is never retried there; `commit` classifies it. What opens
the clients is in `model.sdk.sessions`.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
from aiobotocore.config import AioConfig
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from streamkit.errors import ConfigurationError
from streamkit.model.sdk import sessions
from streamkit.observe.logger import get_logger
from streamkit.observe.version import __version__

T = TypeVar("T")
V = TypeVar("V")

log = get_logger("streamkit.aws")

CONNECT_SECONDS = 2.0
"""Time to open a connection; DynamoDB answers in milliseconds, so a longer time only hides a dead
route."""
READ_SECONDS = 3.0
"""Time for one reply: far above DynamoDB's milliseconds, and below a lease, so that one hanging
call does not lose the lease."""

_PAUSE_SECONDS, _PAUSE_MAX = 0.2, 10.0
"""The first and the longest pause between repetitions of a call that is refused for now."""
BEAT_SECONDS = 1.5
"""Time for one reply to a heartbeat, or to a look at those of other workers: after a call that
hangs there is time for another one within a lease."""


class ErrorKind(Enum):
    """What a failed call means for the caller."""

    CANCELED = "canceled"  # a transaction with reasons
    CONDITION = "condition"  # a single write's condition did not hold
    CONFLICT = "conflict"  # another transaction holds the item: try again soon
    THROTTLED = "throttled"  # try again later, and slower
    UNKNOWN = "unknown"  # the call may have been applied or not: send the same again
    INVALID = "invalid"  # the request can never succeed
    EXPIRED = "expired"  # the iterator is older than 15 minutes
    TRIMMED = "trimmed"  # the position is behind the stream's retention
    MISSING = "missing"  # no such table, stream or shard
    REFUSED = "refused"  # credentials or permissions
    OTHER = "other"


_CODES = {
    "TransactionCanceledException": ErrorKind.CANCELED,
    "ConditionalCheckFailedException": ErrorKind.CONDITION,
    "TransactionConflictException": ErrorKind.CONFLICT,
    "TransactionInProgressException": ErrorKind.UNKNOWN,
    "ProvisionedThroughputExceededException": ErrorKind.THROTTLED,
    "RequestLimitExceeded": ErrorKind.THROTTLED,
    "LimitExceededException": ErrorKind.THROTTLED,
    "ThrottlingException": ErrorKind.THROTTLED,
    "Throttling": ErrorKind.THROTTLED,
    "ValidationException": ErrorKind.INVALID,
    "ItemCollectionSizeLimitExceededException": ErrorKind.INVALID,
    "ExpiredIteratorException": ErrorKind.EXPIRED,
    "TrimmedDataAccessException": ErrorKind.TRIMMED,
    "ResourceNotFoundException": ErrorKind.MISSING,
    "AccessDeniedException": ErrorKind.REFUSED,
    "UnrecognizedClientException": ErrorKind.REFUSED,
    "ExpiredTokenException": ErrorKind.REFUSED,
    "PreconditionFailed": ErrorKind.CONDITION,
    "ConditionalRequestConflict": ErrorKind.CONFLICT,
    "NoSuchKey": ErrorKind.MISSING,
    "SlowDown": ErrorKind.THROTTLED,
    "InternalServerError": ErrorKind.UNKNOWN,
    "ServiceUnavailable": ErrorKind.UNKNOWN,
}

_SLOW = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError"})
"""Reasons of a canceled transaction that ask to slow down."""

AwsError = (ClientError, BotoCoreError)
"""The errors that a call of a client may raise."""
PASSING = frozenset({ErrorKind.THROTTLED, ErrorKind.UNKNOWN})
"""Problems that pass: the same call may succeed a little later."""


def trouble_of(error: BaseException) -> ErrorKind:
    """Return what an exception raised by a client means."""
    if isinstance(error, HTTPClientError | NotConnected):
        return ErrorKind.UNKNOWN
    if not isinstance(error, ClientError):
        return ErrorKind.OTHER
    code = error.response.get("Error", {}).get("Code", "")
    if code in _CODES:
        return _CODES[code]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return ErrorKind.UNKNOWN if status >= 500 else ErrorKind.OTHER


def code_of(error: BaseException) -> str:
    """Return the service's error code, or the exception's class name; never its message."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "ClientError"))
    return type(error).__name__


def is_throttled(reply: Mapping[str, Any]) -> bool:
    """Return whether an error's reply, or any part of a transaction's, asks to slow down."""
    reasons = reply.get("CancellationReasons", ())
    codes = [reply["Error"].get("Code"), *(reason.get("Code") for reason in reasons)]
    return any(_CODES.get(code) is ErrorKind.THROTTLED or code in _SLOW for code in codes)


async def until_known(
    call: Callable[[], Awaitable[T]],
    meaning: Callable[[Exception], Awaitable[V | None]],
    *,
    rng: random.Random | None = None,
    first: float = 0.05,
    longest: float = 5.0,
    tries: int | None = None,
    errors: tuple[type[Exception], ...] = AwsError,
) -> T | V:
    """Repeat a call until it returns, or its error has a final meaning; return that.

    Args:
        call: a call that may be made again, whether it was applied or not: a read, or a write
            whose own success makes its condition false.
        meaning: returns what an error means, or None if another try may succeed; it may raise.
        rng: random numbers, for simulations.
        first: the first pause in seconds; each is twice as long as the one before, give or take.
        longest: the longest pause.
        tries: how often the call is made at most; then its last error is raised.
        errors: what the call may raise that has a meaning.
    """
    pause = first
    while True:
        try:
            return await call()
        except errors as error:
            meant = await meaning(error)
            if meant is not None:
                return meant
            tries = None if tries is None else tries - 1
            if tries == 0:
                raise
        await anyio.sleep(pause * (rng or random).uniform(0.5, 1.5))
        pause = min(pause * 2, longest)


def tell_repeated(error: Exception) -> None:
    """Log that a call was throttled, or has an unknown outcome, and is repeated."""
    reasons = (getattr(error, "response", None) or {}).get("CancellationReasons", ())
    slow = [reason["Code"] for reason in reasons if reason.get("Code") in _SLOW]
    code, called = slow[0] if slow else code_of(error), _called(error)
    log.often("aws.repeated", level="warning", by=f"{code} {called}", code=code, called=called)


def _called(error: Exception) -> str:
    """Return the operation that has answered, or the host that has not."""
    if isinstance(error, ClientError):
        return str(error.operation_name)
    asked = getattr(error, "kwargs", {})  # a BotoCoreError keeps what its text is made of
    return urlsplit(str(asked.get("endpoint_url", ""))).hostname or ""


async def patiently(
    call: Callable[[], Awaitable[T]],
    *,
    longest: float = _PAUSE_MAX,
    passing: tuple[type[Exception], ...] = (),
) -> T:
    """Repeat a call until it is neither throttled nor of unknown outcome, with growing pauses.

    Use it for calls that may be made twice: reads, and writes whose condition recognises a
    repetition. `passing` are errors of other libraries after which it is repeated, too.
    """

    async def meaning(error: Exception) -> None:
        if trouble_of(error) not in PASSING and not isinstance(error, passing):
            raise error
        tell_repeated(error)

    errors, first = (*AwsError, *passing), _PAUSE_SECONDS
    return await until_known(call, meaning, first=first, longest=longest, errors=errors)


@dataclass(frozen=True)
class Aws:
    """The clients of one process; `connect` opens them.

    `beats` is a second client of the table, for heartbeats. The SDK's budget for retries belongs to
    a client, and a throttled aggregate must not use up the heartbeat's.
    """

    dynamodb: Any
    streams: Any
    beats: Any

    async def stream_answers(self, stream_arn: str) -> bool:
        """Return whether the stream's service can be reached; a refusal is an answer, too."""
        try:
            await self.streams.describe_stream(StreamArn=stream_arn, Limit=1)
        except AwsError as error:
            return isinstance(error, ClientError) and trouble_of(error) is not ErrorKind.UNKNOWN
        return True

    async def get_iterator(self, **where: str) -> str:
        """Open a shard, with the arguments of `GetShardIterator`; return the iterator."""
        reply = await self.streams.get_shard_iterator(**where)
        iterator: str = reply["ShardIterator"]
        return iterator

    async def get_page(self, iterator: str, *, limit: int = 1000) -> bytes:
        """Read one page of a shard; return the bytes of the reply to `GetRecords`."""
        reply = await self.streams.get_records(ShardIterator=iterator, Limit=limit)
        body: bytes = reply["Body"]
        return body


def _options(read_seconds: float) -> dict[str, Any]:
    """Return the options that all clients share."""
    return {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": read_seconds,
        "max_pool_connections": 64,
        "account_id_endpoint_mode": "disabled",
        "http_session_cls": sessions.HttpSession,
        # botocore builds its own again for every call, at a fifth of a call's CPU time.
        "user_agent": f"streamkit/{__version__}",
    }


@asynccontextmanager
async def open_client(service: str, *, read_seconds: float) -> AsyncIterator[Any]:
    """Open a client of another service; region, keys and endpoint are the SDK's own.

    `read_seconds` is the time for one reply. AWS_PROFILE, AWS_ENDPOINT_URL and the like apply.
    """
    open_ = sessions.opener()
    config = AioConfig(**_options(read_seconds), retries=_retries(3))
    async with open_(service, config=config) as client:
        yield client


def _retries(attempts: int) -> dict[str, Any]:
    return {"mode": "standard", "total_max_attempts": attempts}


@asynccontextmanager
async def connect(
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    http_session: Callable[..., Any] | None = None,
) -> AsyncIterator[Aws]:
    """Open the clients, with the SDK's ordinary configuration unless told otherwise.

    `http_session` replaces the HTTP layer; the local engine is reached that way, without keys.
    Account-based stream hosts are switched off, so that allow-lists and VPC endpoints keep working.
    """
    # Every request is built by streamkit, never by the application, so the SDK need not validate
    # it before DynamoDB does: that takes a third of the time of a transaction of a hundred items.
    options = _options(READ_SECONDS) | {"parameter_validation": False}
    arguments = {} if endpoint_url is None else {"endpoint_url": endpoint_url}
    region = region or sessions.own_region()
    if http_session is None:
        open_ = sessions.table_opener(profile, region)
    else:
        options |= {"http_session_cls": http_session, "signature_version": UNSIGNED}
        open_ = sessions.shared_opener(profile, region)
        arguments["region_name"] = region or "us-east-1"
    async with AsyncExitStack() as stack:

        async def client(service: str, attempts: int, **more: Any) -> Any:
            config = AioConfig(**{**options, **more}, retries=_retries(attempts))
            try:
                return await stack.enter_async_context(open_(service, config=config, **arguments))
            except ValueError as error:
                if isinstance(error, BotoCoreError):  # such as that of a Region's name
                    raise
                text = f"{error}: correct the AWS_ENDPOINT_URL_* variables, as in http://host:8000"
                raise ConfigurationError(text) from error

        # No SDK retries: a stream reader repeats its calls itself, and frees its place meanwhile.
        streams = await client("dynamodbstreams", 1)
        beats = await client("dynamodb", 3, read_timeout=BEAT_SECONDS)
        yield Aws(await client("dynamodb", 3), streams, beats)
