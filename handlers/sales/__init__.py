"""Sales: roll-ups by country, city and store, for all time, by month and by day.

`entities` says what is in the table, `handlers` what follows from what, `demo` shows it at work
and checks the result.
"""

from handlers.sales.handlers import app

__all__ = ["app"]
