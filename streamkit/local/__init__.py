"""DynamoDB and DynamoDB Streams in memory, for development and tests.

`Engine` answers requests in wire form; no module here imports the rest of streamkit.
"""

from streamkit.local.engine import CallRecord, Engine
from streamkit.local.errors import ApiError
from streamkit.local.stream_settings import StreamSettings

__all__ = ["ApiError", "CallRecord", "Engine", "StreamSettings"]
