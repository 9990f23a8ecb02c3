"""Test handlers on the real runtime, in virtual time: `Harness`, or the fixture `harness_of`."""

from streamkit.testing.harness import Harness, NotSettledError, every_crash

__all__ = ["Harness", "NotSettledError", "every_crash"]
