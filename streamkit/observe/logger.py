"""Loggers that cost nothing until something is logged.

`import structlog` imports rich wherever rich is installed, 60 ms that a Lambda's cold start would
pay before the first change is seen; so the import waits for the first log line.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from streamkit.observe.repeats import EVERY_SECONDS, often


class Logger:
    """A structlog logger, made when it is first used.

    `prepare` sets structlog up before the first line, for a host without a command line; not if the
    program has done so itself.
    """

    prepare: ClassVar[Callable[[], None] | None] = None

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def prepare_with(cls, prepare: Callable[[], None]) -> None:
        """Let every logger call this before its first line."""
        cls.prepare = prepare

    def often(
        self,
        event: str,
        /,
        *,
        by: str,
        level: str = "info",
        every: float = EVERY_SECONDS,
        count: int = 1,
        **fields: Any,
    ) -> None:
        """Log what may happen for every change or call: the first, and then sums of it.

        Args:
            event: its name.
            by: what is summed up together, such as the handler; `fields` name it, too.
            level: of all lines of it.
            every: seconds between two of them.
            count: how many this one stands for.
            fields: of the line; `error` or `code` is counted by its name.
        """
        often(getattr(self, level), event, by, every, count, fields)

    def __getattr__(self, method: str) -> Any:
        import structlog

        if Logger.prepare is not None and not structlog.is_configured():
            Logger.prepare()
        return getattr(structlog.get_logger(self._name), method)


def get_logger(name: str) -> Logger:
    """Return the logger of a part of streamkit; event names are dotted and stable."""
    return Logger(name)
