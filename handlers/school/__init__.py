"""A school: students, sports, and enrolments that carry the names of both.

An adjacency list: the same items are read from either side, and copies follow two parents.
"""

from handlers.school.handlers import app

__all__ = ["app"]
