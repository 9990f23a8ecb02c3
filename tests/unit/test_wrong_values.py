"""A value that cannot be meant is wrong usage, told before an app is loaded or AWS is reached."""

import pytest
from typer.testing import CliRunner

from streamkit.cli.exits import ExitCode
from streamkit.cli.program import program

A_SHARE = "no share up to 100%; give one such as 50%"
A_SAMPLE = "no sample; give a share such as 5%, or a number of items"
ERRORS = "give a share such as 0.1%, a number such as 20, or 0 for no limit"
A_NUMBER = "give a number such as 500; 0 means no limit"
ONE = ("nowhere:app", "0001")
WRONG = [
    *((("migrate", "begin", *ONE), "--max-errors", text, ERRORS) for text in ("abc", "0.1", "-1")),
    *((("migrate", "begin", *ONE), "--share", text, A_SHARE) for text in ("50", "150%", "nan%")),
    (("migrate", "apply", *ONE), "--max-errors", "101%", ERRORS),
    (("migrate", "limit", *ONE), "--max-errors", "few", ERRORS),
    (("migrate", "limit", *ONE), "--max-rcu", "inf", A_NUMBER),
    (("migrate", "begin", *ONE), "--max-wcu", "inf", A_NUMBER),
    (("migrate", "begin", *ONE), "--max-wcu", "nan", "greater than or equal to 0"),
    (("migrate", "begin", *ONE), "--segments", "1000001", "less than or equal to 1000000"),
    (("migrate", "plan", *ONE), "--sample", "abc", A_SAMPLE),
    (("migrate", "plan", *ONE), "--share", "half", A_SHARE),
    (("migrate", "new", *ONE), "--sample", "500%", A_SAMPLE),
    (("migrate", "verify", *ONE), "--sample", "1000", A_SHARE),
    (("local",), "--port", "99999", "less than or equal to 65535"),
    (("dev", "nowhere:app"), "--port", "-1", "greater than or equal to 0"),
]


@pytest.mark.parametrize(("command", "option", "text", "said"), WRONG)
def test_a_wrong_value_is_told_with_the_forms_that_are_taken_before_anything_else(
    command, option, text, said
):
    done = CliRunner().invoke(program, [*command, option, text])
    assert (done.exit_code, type(done.exception)) == (ExitCode.USAGE, SystemExit)
    assert f"Invalid value for '{option}'" in done.stderr
    assert said in done.stderr
