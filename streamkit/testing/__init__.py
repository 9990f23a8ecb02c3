"""Test handlers on the real runtime, in virtual time: `Harness`, or the fixture `harness_of`.

`inserted`, `modified`, `removed` and `expired` make changes for calling a handler directly.
"""

from streamkit.testing.changes import expired, inserted, modified, removed
from streamkit.testing.harness import Harness, NotSettledError, every_crash

__all__ = [
    "Harness",
    "NotSettledError",
    "every_crash",
    "expired",
    "inserted",
    "modified",
    "removed",
]
