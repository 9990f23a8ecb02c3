"""Failures: a command that raised an error prints why, and exits with the code of the error.

In: an error that a command raised. Out: a message on stderr and an exit code. A traceback is shown
only if code, the user's or streamkit's, is wrong.
"""

import sys
import traceback
from pathlib import Path
from types import TracebackType

import typer

from streamkit.archive.long_pages import NotDecided
from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.cli.exits import ExitCode
from streamkit.cli.loading import AppNotLoaded
from streamkit.cli.printing import OutputClosed
from streamkit.errors import ConfigurationError, NotBegun, RetentionLost
from streamkit.progress.operation import Refusal

_OURS = str(Path(__file__).parents[1])
_WRAPPING = frozenset({"typer", "click", "anyio", "asyncio", "contextlib.py"})
"""Libraries whose frames stand between the command line and the work."""

_REACH = (
    ": check the network, AWS_REGION and the AWS_ENDPOINT_URL_* variables; `streamkit local` must"
    " be running if they name it"
)
_KEYS = (
    ": export AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for the local engine,"
    " set what `streamkit local` prints"
)
_EXPIRED = ": the credentials have expired; log in again (as with `aws sso login`)"
_NOT_GIVEN = (
    ": what hands out the credentials, such as a credential process or the metadata service of ECS"
    " or EC2, fails or cannot be reached; mend it, then start again"
)
_SIGNED = (
    ": the secret key is wrong, or this machine's clock is: it may be five minutes off at most"
)
_UNKNOWN_KEY = ": the access key is unknown there; check AWS_PROFILE and the AWS_* variables"
_ALLOWED = (
    ": `streamkit iam MODULE:APP` prints the permissions that it needs, and `streamkit check"
    " MODULE:APP` which of them are missing"
)
_GONE = ": the table, its stream or an index is not there any more; check the name and AWS_REGION"
_ADVICE = {
    "NoRegionError": ": export AWS_REGION, or name a profile that has one in AWS_PROFILE",
    "InvalidRegionError": ": correct AWS_REGION, such as eu-central-1",
    "NoCredentialsError": _KEYS,
    "PartialCredentialsError": _KEYS,
    "CredentialRetrievalError": _NOT_GIVEN,
    "MetadataRetrievalError": _NOT_GIVEN,
    "ProfileNotFound": ": check AWS_PROFILE",
    "ConfigParseError": ": correct the file, or name another one in AWS_CONFIG_FILE",
    "TokenRetrievalError": _EXPIRED,
    "SSOTokenLoadError": _EXPIRED,
    "UnauthorizedSSOTokenError": _EXPIRED,
    "EndpointConnectionError": _REACH,
    "ConnectTimeoutError": _REACH,
    "ReadTimeoutError": _REACH,
    "ConnectionClosedError": _REACH,
    "ProxyConnectionError": ": check HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
    "SSLError": ": name the authorities that signed its certificate in AWS_CA_BUNDLE; an endpoint"
    " without TLS begins with http://",
    "HTTPClientError": ": check the file that AWS_CA_BUNDLE names, and the proxies in HTTPS_PROXY",
    "AccessDeniedException": _ALLOWED,
    "AccessDenied": _ALLOWED,
    "NoSuchBucket": ": create the bucket that BucketArchive or a sink names, or correct its name",
    "ExpiredTokenException": _EXPIRED,
    "ExpiredToken": _EXPIRED,
    "RequestExpired": f"{_EXPIRED}, or this machine's clock is wrong",
    "RequestTimeTooSkewed": _SIGNED,
    "InvalidSignatureException": _SIGNED,
    "SignatureDoesNotMatch": _SIGNED,
    "UnrecognizedClientException": _UNKNOWN_KEY,
    "InvalidClientTokenId": _UNKNOWN_KEY,
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "MissingAuthenticationTokenException": _KEYS,
    "OptInRequired": ": the account has not enabled this Region; check AWS_REGION",
    "ThrottlingException": ": too many calls, or too little capacity; try again later",
    "ProvisionedThroughputExceededException": ": the table has too little capacity; try again"
    " later, or raise it",
}
"""Advice by the SDK's names of errors that happen before any answer of AWS, and by AWS's codes."""


def report(error: Exception) -> ExitCode:
    """Print the error on stderr, and return the exit code for it."""
    inner = _innermost(error)
    if isinstance(inner, OutputClosed):  # ends without a word, like other commands before `| head`
        return ExitCode.OUTPUT_CLOSED
    if isinstance(inner, AppNotLoaded):
        _say(str(inner))
        return ExitCode.IMPORT
    if isinstance(inner, typer.BadParameter):  # from a process that has no command line of its own
        _say(f"error: {inner.message}")
        return ExitCode.USAGE
    if isinstance(inner, RetentionLost):
        _say(f"error: records may be lost: {inner}")
        return ExitCode.RETENTION_LOST
    if isinstance(inner, NotDecided):
        _say(f"error: {inner}")
        return ExitCode.RETENTION_LOST
    if isinstance(inner, NotBegun):
        _say(f"error: {inner}")
        return ExitCode.NOT_BEGUN
    if isinstance(inner, Refusal):
        _say("\n".join(f"refused: {reason}" for reason in inner.reasons))
        return ExitCode.PROBLEMS
    if isinstance(inner, ConfigurationError):
        cause = inner.__cause__
        advice = _ADVICE.get(code_of(cause), "") if isinstance(cause, AwsError) else ""
        _say(f"error: {inner}{advice}")
        return ExitCode.AWS
    if isinstance(inner, AwsError):
        _say(f"error: {_aws_text(inner)}")
        return ExitCode.AWS
    _say(_unexpected(error))
    return ExitCode.UNEXPECTED


def _innermost(error: BaseException) -> BaseException:
    """Return the error inside exception groups that hold only one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _aws_text(error: Exception) -> str:
    """Describe an SDK error; replies other than refusals may quote items, so they are not shown."""
    operation, advice = getattr(error, "operation_name", None), _ADVICE.get(code_of(error), "")
    if trouble_of(error) is ErrorKind.MISSING:
        advice = _GONE
    if operation is None:
        name = type(error).__name__
        return f"{str(error).rstrip('.')} ({name}){advice}"
    if trouble_of(error) is ErrorKind.REFUSED:
        return f"{error}{advice}"
    return f"AWS answers {operation} with {code_of(error)}{advice}"


def _unexpected(error: Exception) -> str:
    """Return a traceback, without the frames between the command line and the work."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_wrapping(frames):
        frames = frames.tb_next
    shown = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    last = [frame for frame, _ in traceback.walk_tb(_innermost(error).__traceback__)][-1:]
    ours = any(frame.f_code.co_filename.startswith(_OURS) for frame in last)
    return f"error: {'unexpected' if ours else 'the app, or what it calls, raised'}\n{shown}"


def _is_wrapping(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    return file.startswith(f"{_OURS}/cli/") or not _WRAPPING.isdisjoint(Path(file).parts)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
