"""Loggers that cost nothing until something is logged.

`import structlog` imports rich where rich is installed. That takes 60 ms, which a cold start on
Lambda would pay before its first change. So the import waits for the first log line.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from streamkit.observe.repeats import EVERY_SECONDS, often


class Logger:
    """A structlog logger, made when it is first used.

    `prepare` sets structlog up before the first line, for a host without a command line. It is not
    called if the program has set structlog up itself.
    """

    prepare: ClassVar[Callable[[], None] | None] = None

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def prepare_with(cls, prepare: Callable[[], None]) -> None:
        """Make every logger call `prepare` before its first line."""
        cls.prepare = prepare

    def often(
        self,
        event: str,
        /,
        *,
        by: str,
        level: str = "info",
        every: float = EVERY_SECONDS,
        quiet: float = 0.0,
        count: int = 1,
        **fields: Any,
    ) -> None:
        """Log an event that may happen for every change or call: the first one, then sums.

        Args:
            event: the event's name.
            by: what is summed up together, such as the handler; `fields` name it, too.
            level: the level of all its lines.
            every: seconds between two lines.
            quiet: seconds of silence after which it is over, if longer than `every`; the time
                between two lines then grows to an hour.
            count: how many events this call stands for.
            fields: the fields of the line; `error` or `code` is counted by its name.
        """
        often(getattr(self, level), event, by, (every, quiet), count, fields)

    def __getattr__(self, method: str) -> Any:
        import structlog

        if Logger.prepare is not None and not structlog.is_configured():
            Logger.prepare()
        return getattr(structlog.get_logger(self._name), method)


def get_logger(name: str) -> Logger:
    """Return the logger of a part of streamkit; event names are dotted and stable."""
    return Logger(name)
