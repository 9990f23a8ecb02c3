"""A session store on a table without a sort key: who is logged in, how it ended, who is blocked.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.sessions.handlers import app

__all__ = ["app"]
