"""What AWS refuses is told with what to do, in a sentence and without a traceback."""

import pytest
import typer
from botocore.exceptions import (
    ClientError,
    ConfigParseError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    HTTPClientError,
    ProxyConnectionError,
    SSLError,
    UnauthorizedSSOTokenError,
)

from streamkit.archive.long_pages import NotDecided
from streamkit.archive.shards import born
from streamkit.cli.exits import ExitCode
from streamkit.cli.failures import report
from streamkit.errors import ConfigurationError
from streamkit.progress.transaction import refused

ADVICE = {
    "AccessDeniedException": "streamkit iam MODULE:APP",
    "ExpiredTokenException": "log in again",
    "InvalidSignatureException": "this machine's clock",
    "UnrecognizedClientException": "check AWS_PROFILE",
    "SignatureDoesNotMatch": "this machine's clock",
    "RequestTimeTooSkewed": "this machine's clock",
    "RequestExpired": "or this machine's clock is wrong",
    "ExpiredToken": "log in again",
    "InvalidClientTokenId": "check AWS_PROFILE",
    "MissingAuthenticationTokenException": "export AWS_PROFILE",
    "OptInRequired": "has not enabled this Region",
    "AccessDenied": "streamkit iam MODULE:APP",
    "NoSuchBucket": "create the bucket",
    "ThrottlingException": "try again later",
    "ProvisionedThroughputExceededException": "try again later, or raise it",
}


def refusal(code):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeTable")


@pytest.mark.parametrize("code", ["InvalidSignatureException", "ExpiredTokenException"])
def test_a_commit_whose_sender_is_refused_is_told_of_no_permission(code, capsys):
    error = refused("commits", refusal(code))
    error.__cause__ = refusal(code)
    assert report(error) == ExitCode.AWS
    said = capsys.readouterr().err
    assert said.startswith(f"error: the table refuses commits: {code}: the ")
    assert ADVICE[code] in said


@pytest.mark.parametrize(("code", "advice"), ADVICE.items())
def test_each_refusal_says_what_to_do(code, advice, capsys):
    assert report(refusal(code)) == ExitCode.AWS
    said = capsys.readouterr().err
    assert code in said
    assert advice in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("code", "advice"), ADVICE.items())
def test_so_does_a_table_that_cannot_be_described(code, advice, capsys):
    error = ConfigurationError(f"table 'T' cannot be described: {code}")
    error.__cause__ = refusal(code)
    assert report(error) == ExitCode.AWS
    said = capsys.readouterr().err
    assert said.startswith(f"error: table 'T' cannot be described: {code}: ")
    assert advice in said


def test_a_table_that_is_deleted_meanwhile_is_told_once(capsys):
    report(refusal("ResourceNotFoundException"))
    assert "is not there any more; check the name" in capsys.readouterr().err
    error = ConfigurationError("there is no table 'T'; check the name")
    error.__cause__ = refusal("ResourceNotFoundException")
    report(error)
    assert capsys.readouterr().err == "error: there is no table 'T'; check the name\n"


def test_an_archive_that_has_not_decided_is_told_without_a_traceback(capsys):
    error = ExceptionGroup("in a group", [NotDecided("shard s: run its writer first")])
    assert report(error) == ExitCode.RETENTION_LOST
    assert capsys.readouterr().err == "error: shard s: run its writer first\n"


def test_wrong_usage_that_a_process_meets_later_is_told_without_a_traceback(capsys):
    assert report(typer.BadParameter("health: cannot listen on 127.0.0.1:80")) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: health: cannot listen on 127.0.0.1:80\n"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (HTTPClientError(error="no such file"), "AWS_CA_BUNDLE"),
        (SSLError(endpoint_url="https://h", error="self-signed"), "AWS_CA_BUNDLE"),
        (ProxyConnectionError(proxy_url="http://p"), "HTTPS_PROXY"),
        (ConnectTimeoutError(endpoint_url="http://h"), "check the network"),
        (
            CredentialRetrievalError(provider="custom-process", error_msg="it is away"),
            "what hands out the credentials",
        ),
        (UnauthorizedSSOTokenError(), "log in again"),
        (ConfigParseError(path="config"), "AWS_CONFIG_FILE"),
    ],
)
def test_what_happens_before_any_answer_says_what_to_do(error, advice, capsys):
    assert report(error) == ExitCode.AWS
    said = capsys.readouterr().err
    assert advice in said.rpartition(f"({type(error).__name__}): ")[2]


def test_an_error_that_nobody_knows_gets_no_advice(capsys):
    assert report(refusal("Odd")) == ExitCode.AWS
    assert capsys.readouterr().err == "error: AWS answers DescribeTable with Odd\n"


def raised(call):
    """Return what a call raises, in the groups of two nested tasks."""
    try:
        call()
    except Exception as error:
        return ExceptionGroup("outer", [ExceptionGroup("inner", [error])])


def test_an_error_inside_groups_in_groups_is_told_as_it_is(capsys):
    nested = raised(lambda: (_ for _ in ()).throw(ConfigurationError("mend the shape")))
    assert report(nested) == ExitCode.AWS
    assert capsys.readouterr().err == "error: mend the shape\n"


def test_whose_code_has_raised_is_told_by_its_innermost_line(capsys):
    """A path of streamkit in the text of an error says nothing of that, nor do tasks around it."""
    assert report(raised(lambda: int("streamkit/cli/failures.py"))) == ExitCode.UNEXPECTED
    assert capsys.readouterr().err.startswith("error: the app, or what it calls, raised\n")
    assert report(raised(lambda: born(None))) == ExitCode.UNEXPECTED
    assert capsys.readouterr().err.startswith("error: unexpected\n")
