"""Issue numbers with zeros in front, so that issue 10 does not stand before issue 9."""

from typing import Annotated

from pydantic import Field

from handlers.repos.entities import ISSUES_MAX, Issue, State
from handlers.repos.handlers import app
from streamkit import Entity


class EarlyIssue(Entity, pk="REPO#{owner}#{name}", sk="ISSUE#{number}"):
    """An issue whose key has its number as it is."""

    owner: str
    name: str
    number: Annotated[int, Field(ge=1, le=ISSUES_MAX)]
    title: str
    state: State = "open"


def unpadded(issue: Issue) -> EarlyIssue:
    """Return the issue under its old key."""
    return EarlyIssue.model_validate(issue.model_dump())


@app.migration("0001", EarlyIssue, mode="rekey", reverse=unpadded)
def padded(issue: EarlyIssue) -> Issue:
    """Move an issue; one that is padded stays where it is."""
    return Issue.model_validate(issue.model_dump())
