"""A bucket of S3 as an archive.

An object is created with `If-None-Match: *`, so that only one of two writers succeeds. S3 answers
409 while another request for the same name is under way: then the same request is sent again. If a
reply was lost, the write may have succeeded: the next try then finds this same object under the
name. What the bucket refuses is an `ArchiveRefused`, with the permission that is missing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio

from streamkit.archive.contents import whole_reply
from streamkit.archive.objects import FLUSH, ArchiveRefused, Flush, Objects, Stored
from streamkit.aws import AwsError, ErrorKind, code_of, open_client, patiently, trouble_of
from streamkit.errors import DeclarationError

T = TypeVar("T")

_READ_SECONDS = 30.0
"""The time for one reply: an object of some megabytes over a slow line."""
_PAUSE_SECONDS = 0.2
"""The pause before a write is sent again that met another write of the same name."""
_NEEDED = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject, and s3:ListBucket for what does not exist",
    "ListObjectsV2": "s3:ListBucket",
}
_MEANT = frozenset({ErrorKind.MISSING, ErrorKind.CONDITION, ErrorKind.CONFLICT})
"""What S3 answers to a call that it allows."""


@dataclass(frozen=True)
class BucketArchive:
    """Keep an archive in a bucket of S3, with the SDK's own region, keys and endpoint.

    Attributes:
        url: `s3://BUCKET`, or `s3://BUCKET/PREFIX`.
        kms_key: a key of KMS that encrypts the objects; by default the bucket's own setting counts.
        flush: when what was read is stored.

    Raises:
        DeclarationError: the URL is not of this form.
    """

    url: str
    kms_key: str = ""
    flush: Flush = FLUSH

    def __post_init__(self) -> None:
        """Check the URL."""
        parts = urlsplit(self.url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
            raise DeclarationError(
                f"BucketArchive({self.url!r}): write s3://BUCKET or s3://BUCKET/PREFIX"
            )

    @property
    def place(self) -> str:
        """Return the URL."""
        return self.url

    @property
    def bucket(self) -> str:
        """Return the bucket's name."""
        return urlsplit(self.url).netloc

    @property
    def prefix(self) -> str:
        """Return the beginning of all object names; empty, or with a slash at its end."""
        path = urlsplit(self.url).path.strip("/")
        return f"{path}/" if path else ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Objects]:
        """Yield the objects of the bucket, through a client of its own."""
        keys = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key}
        async with open_client("s3", read_seconds=_READ_SECONDS) as client:
            yield _Bucket(client, self.bucket, self.prefix, keys if self.kms_key else {})


@dataclass(frozen=True)
class _Bucket:
    client: Any
    bucket: str
    prefix: str
    extra: dict[str, str] = field(default_factory=dict)

    async def create(self, name: str, body: bytes) -> bool:
        return await self._put(name, body, IfNoneMatch="*")

    async def replace(self, name: str, body: bytes, tag: str) -> bool:
        try:
            return await self._put(name, body, IfMatch=tag)
        except AwsError as error:
            if trouble_of(error) is ErrorKind.MISSING:
                return False  # it was removed since it was read
            raise

    async def read(self, name: str) -> Stored | None:
        where = {"Bucket": self.bucket, "Key": self.prefix + name}
        try:
            reply, body = await self._allowed(
                lambda: whole_reply(lambda: self.client.get_object(**where))
            )
        except AwsError as error:
            if trouble_of(error) is ErrorKind.MISSING:
                return None
            raise
        return Stored(body, reply["ETag"])

    async def try_writing(self, name: str) -> None:
        await self.create(name, b"")  # it stays: a worker may not delete

    async def names(self, prefix: str, after: str = "") -> list[str]:
        begin = {"StartAfter": self.prefix + after} if after else {}
        where = {"Bucket": self.bucket, "Prefix": self.prefix + prefix, **begin}
        while True:
            call = partial(patiently, partial(self.client.list_objects_v2, **where))
            reply = await self._allowed(call)
            found = [one["Key"].removeprefix(self.prefix) for one in reply.get("Contents", [])]
            if found or not reply.get("IsTruncated"):
                return found
            where["ContinuationToken"] = reply["NextContinuationToken"]  # the page was empty

    async def _put(self, name: str, body: bytes, **condition: str) -> bool:
        where = {"Bucket": self.bucket, "Key": self.prefix + name, "Body": body}
        write: Callable[[], Awaitable[Any]] = lambda: self.client.put_object(  # noqa: E731
            **where, **condition, **self.extra, ContentType="application/gzip"
        )
        while True:
            try:
                await self._allowed(lambda: patiently(write))
            except AwsError as error:
                trouble = trouble_of(error)
                if trouble is ErrorKind.CONDITION:
                    return False
                if trouble is not ErrorKind.CONFLICT:
                    raise
                await anyio.sleep(_PAUSE_SECONDS)
            else:
                return True

    async def _allowed(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what a call returns.

        Raises:
            ArchiveRefused: the bucket refuses it, or there is none.
            AwsError: the bucket has answered what its caller knows, or the SDK cannot call.
        """
        try:
            return await call()
        except AwsError as error:
            code, called = code_of(error), getattr(error, "operation_name", "")
            if not called or trouble_of(error) in _MEANT:
                raise
            place = f"s3://{self.bucket}/{self.prefix}"
            todo = {
                "NoSuchBucket": f"create the bucket {self.bucket}, or correct its name",
                "AccessDenied": f"its role needs {_NEEDED.get(called, called)}, as `streamkit iam`"
                " prints, and the key that the bucket encrypts with",
            }.get(code)
            text = f"the archive in {place} answers {called} with {code}"
            more = todo or "check its name, its Region, its key and the credentials"
            # Commands add what a code means that is not known here.
            raise ArchiveRefused(f"{text}: {more}") from (None if todo else error)
