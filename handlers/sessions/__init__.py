"""A session store on a table without a sort key: logins, how they ended, and blocked users.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.sessions.handlers import app

__all__ = ["app"]
