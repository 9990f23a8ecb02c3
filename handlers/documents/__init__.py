"""Documents: versions made of parts, a history of every change, and settings read from copies.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.documents.handlers import app

__all__ = ["app"]
