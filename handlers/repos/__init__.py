"""Repos: stars and issues of repositories, counted beside them.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.repos.handlers import app

__all__ = ["app"]
