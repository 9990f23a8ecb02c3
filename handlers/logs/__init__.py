"""Logs: a table for each month, a day's lines spread over partitions, expired ones archived.

`entities` says what is in a table, `handlers` what follows from what, `demo` shows it at work and
checks the result. `app` is that of this month, `previous` that of the month before.
"""

from handlers.logs.handlers import app, previous

__all__ = ["app", "previous"]
