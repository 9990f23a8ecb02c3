"""Device logs: which states devices were in, who looked after them, who has to know.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.devices.handlers import app

__all__ = ["app"]
