"""Exit codes, and what an error means for one. They are part of the interface: scripts rely on it.

In: whatever a command raised. Out: a message on stderr and an exit code. A traceback is shown only
where somebody's code, the user's or streamkit's, is wrong.
"""

import sys
import traceback
from enum import IntEnum

from streamkit.aws import AwsError, Trouble, code_of, trouble_of
from streamkit.cli.loading import AppNotLoaded
from streamkit.errors import ConfigurationError, RetentionLost


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    IMPORT = 3
    AWS = 4
    PROBLEMS = 5
    RETENTION_LOST = 6
    WAITS_FOR_PEOPLE = 7
    PAUSED = 8
    BLOCKED = 70
    INTERRUPTED = 130


def report(error: Exception) -> ExitCode:
    """Say on stderr what went wrong, and return the exit code for it."""
    inner = _innermost(error)
    if isinstance(inner, AppNotLoaded):
        _say(str(inner))
        return ExitCode.IMPORT
    if isinstance(inner, RetentionLost):
        _say(f"error: records may be lost: {inner}")
        return ExitCode.RETENTION_LOST
    if isinstance(inner, ConfigurationError):
        _say(f"error: {inner}")
        return ExitCode.AWS
    if isinstance(inner, AwsError):
        _say(f"error: {_aws_text(inner)}")
        return ExitCode.AWS
    traceback.print_exception(error, file=sys.stderr)
    return ExitCode.UNEXPECTED


def _innermost(error: BaseException) -> BaseException:
    """Look through groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _aws_text(error: Exception) -> str:
    """Describe an error of the SDK; replies other than refusals may quote items."""
    operation = getattr(error, "operation_name", None)
    if operation is None:
        return f"{error} ({type(error).__name__})"
    if trouble_of(error) is Trouble.REFUSED:
        return str(error)
    return f"AWS answers {operation} with {code_of(error)}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
