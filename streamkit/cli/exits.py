"""Exit codes. They are part of the interface: scripts rely on them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The result of a command."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    IMPORT = 3
    AWS = 4
    PROBLEMS = 5
    RETENTION_LOST = 6
    WAITS_FOR_PEOPLE = 7
    PAUSED = 8
    NOT_BEGUN = 9
    BLOCKED = 70
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
