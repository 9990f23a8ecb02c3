"""Test handlers on the real runtime, in virtual time: `Harness`, or the fixture `harness_of`.

`trial` runs an app under your own traffic, with crashes, splits and expiries, and compares the
final tables with what they must hold; `recording` replaces sinks by recorders.

`inserted`, `modified`, `removed` and `expired` make changes for calling a handler directly.
"""

from streamkit.testing.changes import expired, inserted, modified, removed
from streamkit.testing.every import every_crash, every_freeze
from streamkit.testing.final import Comparison, Final
from streamkit.testing.harness import Harness, HarnessOf, NotSettledError, UnexpectedlyParked
from streamkit.testing.recording import Recorder, recording
from streamkit.testing.traffic import Traffic, Writer
from streamkit.testing.trial import Different, Trouble, trial

__all__ = [
    "Comparison",
    "Different",
    "Final",
    "Harness",
    "HarnessOf",
    "NotSettledError",
    "Recorder",
    "Traffic",
    "Trouble",
    "UnexpectedlyParked",
    "Writer",
    "every_crash",
    "every_freeze",
    "expired",
    "inserted",
    "modified",
    "recording",
    "removed",
    "trial",
]
