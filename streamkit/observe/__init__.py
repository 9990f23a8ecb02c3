"""What streamkit says about itself while it runs.

`configure` sets up structured logs, `EVENTS` names every event that is ever logged, and `redact`
keeps item data out of them.
"""

from streamkit.observe.events import EVENTS
from streamkit.observe.logs import configure
from streamkit.observe.redaction import redact

__all__ = ["EVENTS", "configure", "redact"]
