"""Big Time Deals: brands, categories, deals, and messages to those who watch for them.

One table with three overloaded indexes and one sparse one. `entities` says what is in it,
`handlers` what follows from what, `demo` shows it at work and checks the result.
"""

from handlers.deals.handlers import app

__all__ = ["app"]
