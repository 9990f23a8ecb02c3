"""The stars of repositories that were starred before anybody counted."""

from handlers.repos.handlers import StarCount, app

app.migration("0002", StarCount, mode="aggregate")
