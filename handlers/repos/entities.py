"""The entities of repos: a repository, and what stands in its collection."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from streamkit import Entity

State = Literal["open", "closed"]

ISSUES_MAX = 99_999_999
"""A number has eight digits in its key, so that issues sort by number."""


class Repo(Entity, pk="REPO#{owner}#{name}", sk="REPO#{owner}#{name}"):
    """A repository. Issues take their numbers from `issues_made`, which only grows."""

    owner: str
    name: str
    description: str = ""
    issues_made: int = 0


class Star(Entity, pk="REPO#{owner}#{name}", sk="STAR#{user}"):
    """A user likes a repository: once, because that is the item's key."""

    owner: str
    name: str
    user: str
    at: AwareDatetime


class Issue(Entity, pk="REPO#{owner}#{name}", sk="ISSUE#{number:08d}"):
    """An issue of a repository. One that is deleted leaves the counts."""

    owner: str
    name: str
    number: Annotated[int, Field(ge=1, le=ISSUES_MAX)]
    title: str
    state: State = "open"
