"""Relay: what table streams are used for, one sink for each use.

`entities` says what is in the table, `places` where changes go, `handlers` what goes where. `demo`
shows it at work, on stand-ins for everything outside, and checks what has arrived there.
"""

from handlers.relay.handlers import app

__all__ = ["app"]
