"""Errors of the local engine, in DynamoDB's wire form.

Every refusal inside the engine is an `ApiError`. The doors (transport, server, `Engine.call`) turn
it into a status and a JSON body. The namespace in `__type` and the spelling of the message member
differ between errors as they do in AWS, because SDKs read both.
"""

from typing import Any

_DYNAMODB = "com.amazonaws.dynamodb.v20120810"
_SERVICE = "com.amazon.coral.service"
_NAMESPACES = {
    "ValidationException": "com.amazon.coral.validate",
    "ThrottlingException": "com.amazon.coral.availability",
    "AccessDeniedException": _SERVICE,
    "IncompleteSignatureException": _SERVICE,
    "InternalFailure": _SERVICE,
    "InvalidSignatureException": _SERVICE,
    "MissingAuthenticationTokenException": _SERVICE,
    "SerializationException": _SERVICE,
    "UnknownOperationException": _SERVICE,
    "UnrecognizedClientException": _SERVICE,
}
_CAPITAL_MESSAGE = frozenset({"SerializationException", "TransactionCanceledException"})


class ApiError(Exception):
    """A refusal by the service: an error code, a message and an HTTP status.

    Args:
        code: the exception's name without its namespace, `ValidationException` for example.
        message: the text that AWS sends; empty when AWS sends none.
        status: the HTTP status.
        **extra: further members of the body, `CancellationReasons` or `Item` for example.
    """

    def __init__(self, code: str, message: str, *, status: int = 400, **extra: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.extra = extra

    def body(self) -> dict[str, Any]:
        """Return the JSON body AWS would send for this error."""
        namespace = _NAMESPACES.get(self.code, _DYNAMODB)
        body: dict[str, Any] = {"__type": f"{namespace}#{self.code}"}
        if self.message:
            body["Message" if self.code in _CAPITAL_MESSAGE else "message"] = self.message
        return body | self.extra


def validation(message: str) -> ApiError:
    """Return a `ValidationException`: the request breaks a rule, and a retry cannot help."""
    return ApiError("ValidationException", message)


def serialization(message: str) -> ApiError:
    """Return a `SerializationException`: the JSON is well formed but has a wrong type somewhere."""
    return ApiError("SerializationException", message)
