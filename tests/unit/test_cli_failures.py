"""What AWS refuses is told with what to do, in a sentence and without a traceback."""

import pytest
import typer
from botocore.exceptions import ClientError

from streamkit.cli.exits import ExitCode
from streamkit.cli.failures import report
from streamkit.errors import ConfigurationError

ADVICE = {
    "AccessDeniedException": "streamkit iam MODULE:APP",
    "ExpiredTokenException": "log in again",
    "InvalidSignatureException": "this machine's clock",
    "UnrecognizedClientException": "check AWS_PROFILE",
    "ThrottlingException": "try again later",
    "ProvisionedThroughputExceededException": "try again later, or raise it",
}


def refusal(code):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeTable")


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


def test_wrong_usage_that_a_process_meets_later_is_told_without_a_traceback(capsys):
    assert report(typer.BadParameter("health: cannot listen on 127.0.0.1:80")) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: health: cannot listen on 127.0.0.1:80\n"


def test_an_error_that_nobody_knows_gets_no_advice(capsys):
    assert report(refusal("Odd")) == ExitCode.AWS
    assert capsys.readouterr().err == "error: AWS answers DescribeTable with Odd\n"
