"""What follows from stars and issues: counts, in the collection of the repository."""

from typing import Annotated

from handlers.repos.entities import Issue, Repo, Star
from streamkit import Aggregate, App, Count, TableShape

app = App("repos", table="Repos", entities=[Repo])

SHAPE = TableShape()


@app.aggregate
class StarCount(Aggregate[Star], pk="REPO#{owner}#{name}", sk="COUNT#STARS"):
    """How many users have starred a repository."""

    owner: str
    name: str
    stars: Annotated[int, Count()] = 0


@app.aggregate
class IssueCount(Aggregate[Issue], pk="REPO#{owner}#{name}", sk="COUNT#ISSUES"):
    """How many issues a repository has: closing one moves it from one count to the other."""

    owner: str
    name: str
    open: Annotated[int, Count(when=lambda issue: issue.state == "open")] = 0
    closed: Annotated[int, Count(when=lambda issue: issue.state == "closed")] = 0
