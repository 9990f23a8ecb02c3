"""The frequent calls of a client, in two fifths of the CPU time that botocore takes for them.

botocore computes for each call again where it goes, which headers it has and how it is signed; its
parsers look up the shape of each attribute. Here all of that is computed once. In: a client of
DynamoDB or of its streams. Out: the same requests except for spaces in their bodies, and the same
replies; a page of `GetRecords` stays bytes, which `stream` decodes. On failure: what botocore
raises, after retries.

Credentials, connections, retries with their budget, and errors are botocore's, as are the events of
the parameters and of the reply. What is not as usual goes botocore's own way: another signature
than Version 4, a path in the URL, values that are no plain JSON. So does everything while a tool
that traces calls has replaced botocore's method.
"""

import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from aiobotocore.client import AioBaseClient
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import NoCredentialsError
from botocore.handlers import add_recursion_detection_header

from streamkit.model.sdk.signature import Signer
from streamkit.model.sdk.signing_again import SignAgain

_FREQUENT = frozenset(
    {
        "BatchGetItem",
        "DeleteItem",
        "GetItem",
        "GetRecords",
        "PutItem",
        "Query",
        "Scan",
        "TransactWriteItems",
        "UpdateItem",
    }
)
_ORDINARY = AioBaseClient._make_api_call  # noqa: SLF001 - where tools that trace calls hook in
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Parser(AioJSONParser):  # type: ignore[misc]
    """Parses simple replies at once; only binary values need botocore's own parser."""

    async def parse(self, response: dict[str, Any], shape: Any) -> Any:
        operation = response.get("context", {}).get("operation_name")
        body, headers = response["body"], response["headers"]
        if operation not in _FREQUENT or response["status_code"] >= 300:
            return await super().parse(response, shape)
        metadata = {"HTTPStatusCode": response["status_code"], "HTTPHeaders": {}}
        if operation == "GetRecords":
            return {"Body": body, "ResponseMetadata": metadata}
        if b'"B":' in body or b'"BS":' in body:
            return await super().parse(response, shape)
        try:
            reply = _decode(body)
        except msgspec.MsgspecError:  # such as half of a surrogate pair
            return await super().parse(response, shape)
        metadata |= {"HTTPHeaders": headers, "RequestId": headers.get("x-amzn-requestid", "")}
        return {**reply, "ResponseMetadata": metadata}


class ParserFactory(AioResponseParserFactory):  # type: ignore[misc]
    """Makes the parsers of replies."""

    def create_parser(self, protocol_name: str) -> Any:
        """Return a parser of replies in a protocol."""
        if protocol_name == "json":
            return _Parser(**self._defaults)
        return super().create_parser(protocol_name)


@dataclass(frozen=True)
class _Endpoint:
    """A client's address, headers, and signer if requests are signed."""

    url: str
    target: str
    headers: Mapping[str, str]
    more: Mapping[str, str]
    signer: Signer | None
    in_lambda: bool = field(default_factory=lambda: "AWS_LAMBDA_FUNCTION_NAME" in os.environ)

    def request(self, name: str, body: bytes, credentials: Any, retries: Any) -> AWSPreparedRequest:
        """Return a request that can be sent; `retries` names the call, and counts its attempts."""
        headers = {**self.headers, "X-Amz-Target": self.target + name}
        if self.signer is not None:
            now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self.signer.sign(headers, body, credentials, now)
        if self.in_lambda:
            add_recursion_detection_header({"headers": headers})
        headers |= self.more
        headers["amz-sdk-invocation-id"] = retries["invocation-id"]
        headers["amz-sdk-request"] = f"attempt={retries['attempt']}"
        return AWSPreparedRequest("POST", self.url, headers, body, stream_output=False)


class _Client(AioBaseClient):  # type: ignore[misc]
    """A client whose frequent calls take the short way."""

    _way: _Endpoint | Literal[False] | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        service = self.meta.service_model.service_id.hyphenize()
        self.meta.events.register(f"needs-retry.{service}", SignAgain().pause)

    async def _make_api_call(self, operation_name: str, api_params: dict[str, Any]) -> Any:
        model = self._service_model.operation_model(operation_name)
        context = {"client_config": self.meta.config}
        way = await self._usual_way(model, api_params)
        body = way and await self._written(model, api_params, context)
        if not (way and body):
            return await super()._make_api_call(operation_name, api_params)
        http, reply = await self._sent(way, model, body, context)
        told = {"http_response": http, "parsed": reply, "context": context}
        await self._tell("after-call", model, **told)
        if http.status_code >= 300:
            error = self.exceptions.from_code(reply.get("Error", {}).get("Code"))
            raise error(reply, operation_name)
        return reply

    async def _usual_way(self, model: Any, params: dict[str, Any]) -> _Endpoint | Literal[False]:
        """Return the address and headers of a call; False if it has to go botocore's own way."""
        if model.name not in _FREQUENT or AioBaseClient._make_api_call is not _ORDINARY:  # noqa: SLF001
            return False
        if model.name == "TransactWriteItems" and "ClientRequestToken" not in params:
            return False
        if self._way is None:
            self._way = await self._found_way(model, params)
        return self._way

    async def _found_way(self, model: Any, params: dict[str, Any]) -> _Endpoint | Literal[False]:
        """Return the address and headers of this client's requests; False if they are not as usual.

        The first one shows it. Endpoints of accounts, which depend on the table, are switched off.
        """
        context: dict[str, Any] = {}
        url, headers, _ = await self._resolve_endpoint_ruleset(model, params, context)
        signer, by, own = self._request_signer, context.get("signing", {}), None
        version = await signer._choose_signer(model.name, "standard", context)  # noqa: SLF001
        if version not in (UNSIGNED, "v4") or urlsplit(url).path not in ("", "/"):
            return False
        if version == "v4":
            region = by.get("region", signer.region_name)
            own = Signer(url, region, by.get("signing_name", signer.signing_name))
        more = {name: ", ".join(values) for name, values in headers.items()}
        more["User-Agent"] = self._user_agent_creator.to_string()
        about = model.metadata
        kind = {"Content-Type": f"application/x-amz-json-{about['jsonVersion']}"}
        return _Endpoint(f"{url.rstrip('/')}/", f"{about['targetPrefix']}.", kind, more, own)

    async def _tell(self, event: str, model: Any, **told: Any) -> list[Any]:
        """Return what botocore's listeners answer."""
        service = model.service_model.service_name.replace("dbs", "db-s")
        answers = await self.meta.events.emit(
            f"{event}.{service}.{model.name}", model=model, **told
        )
        return [answer for _, answer in answers if answer is not None]

    async def _written(
        self, model: Any, params: dict[str, Any], context: dict[str, Any]
    ) -> bytes | None:
        """Return the body of a request; None if its values are not those of JSON."""
        asked = await self._tell("provide-client-params", model, params=params, context=context)
        try:
            return _encode(asked[0] if asked else params)
        except (TypeError, ValueError):
            return None

    async def _sent(
        self, way: _Endpoint, model: Any, body: bytes, context: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Send a request until botocore says that it need not be repeated."""
        endpoint, attempts, answer = self._endpoint, 0, None
        while True:
            attempts += 1
            endpoint._update_retries_context(context, attempts, answer)  # noqa: SLF001
            credentials = way.signer and await self._frozen()
            request = way.request(model.name, body, credentials, context["retries"])
            answer, error = await endpoint._get_response(request, model, context)  # noqa: SLF001
            if attempts == 1 and answer is not None and await _is_whole(answer[0]):
                break
            asked = attempts, model, {"context": context}, answer, error
            if not await endpoint._needs_retry(*asked):  # noqa: SLF001
                break
        if error is not None:
            raise error
        http, reply = answer
        reply["ResponseMetadata"]["RetryAttempts"] = attempts - 1
        return http, reply

    async def _frozen(self) -> Any:
        credentials = self._get_credentials()
        if credentials is None:
            raise NoCredentialsError
        return await credentials.get_frozen_credentials()


async def _is_whole(response: Any) -> bool:
    """Return whether a reply is a success, and its body is what was sent."""
    sent = response.headers.get("x-amz-crc32")
    right = sent is None or int(sent) == zlib.crc32(await response.content)
    return right and response.status_code < 300


def make_short(base_classes: list[type], **_: Any) -> None:
    """Let a class of clients take the short way; botocore asks before it makes the class."""
    base_classes.insert(0, _Client)
