"""Notice that a table's stream was disabled, or replaced by a new one, while workers run.

A disabled stream is read to its end, and then stays as quiet as a table without writes. The
leader, whose listing says that nothing is written to the stream any more, looks at the table. On
failure: where the table has another stream, the worker ends; the next one that starts finds out
what may be lost, and does what the app says about that.
"""

from dataclasses import dataclass

from streamkit.aws import Aws
from streamkit.core.tables import describe
from streamkit.errors import ConfigurationError
from streamkit.model.schema import TableSchema
from streamkit.observe.logger import get_logger

log = get_logger("streamkit.worker")


@dataclass(frozen=True, slots=True)
class StreamChange:
    """Compares a table with what it was when its worker started."""

    aws: Aws
    table: TableSchema

    async def look(self) -> None:
        """Log it if the stream is disabled; call this when nothing is written to it any more.

        Raises:
            ConfigurationError: the table has another stream now, or does not exist any more.
        """
        name = self.table.name
        now = await describe(self.aws, name, type_attribute=None)
        if now.stream_arn is None:
            log.often("stream.disabled", level="error", by=name, table=name)
        elif now.stream_arn != self.table.stream_arn:
            raise ConfigurationError(
                f"the stream of table {name} was replaced by a new one, which this worker does not"
                " read: start it again; it then finds out what may be lost, and does what on_loss="
                " says"
            )
