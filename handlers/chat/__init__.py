"""A chat: users, servers, memberships that carry the user's name, and messages.

Copies of names follow the users, and items to log in by come and go with what they are called.
"""

from handlers.chat.handlers import app

__all__ = ["app"]
