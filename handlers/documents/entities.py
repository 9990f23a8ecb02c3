"""The entities of documents: a pointer, the parts that it points to, its history, and settings.

Only the handlers write `Version`, `SettingsCopy` and the field `version` of `Document`.
"""

from typing import Annotated

from pydantic import AwareDatetime, Field

from streamkit import Entity, Key

PartName = Annotated[str, Field(pattern=r"^[A-Z]+$")]


class Part(Entity, pk="DOCUMENT#{document_id}", sk="{name}_V{number}"):
    """A part of a document in one of its versions, such as `INTRO_V1`. It is never changed."""

    document_id: str
    name: PartName
    number: Annotated[int, Field(ge=1)]
    text: str
    author: str


class Composed(Entity):
    """What is made of parts: which version of each, by name."""

    document_id: str
    parts: dict[PartName, int] = Field(default_factory=dict)

    @property
    def part_keys(self) -> list[Key[Part]]:
        """Return the keys of the parts."""
        return [
            Part.key(document_id=self.document_id, name=name, number=number)
            for name, number in sorted(self.parts.items())
        ]


class Document(Composed, pk="DOCUMENT#{document_id}", sk="V0"):
    """A document as it is now: pointers to its parts, by whom and when they were set.

    The application sets fields and puts none over a document that is there, because `version`, the
    number of the latest version, is the handlers'.
    """

    title: str
    author: str
    at: AwareDatetime
    version: int = 0


class Version(Composed, pk="DOCUMENT#{document_id}", sk="V{number}"):
    """A change of a document: what it pointed to since, by whom and when.

    The version of a deletion has a moment, but neither title nor author.
    """

    number: Annotated[int, Field(ge=1)]
    title: str | None = None
    author: str | None = None
    at: AwareDatetime


class Settings(Entity, pk="GLOBAL_SETTINGS", sk="GLOBAL_SETTINGS"):
    """The settings of everything: what is written."""

    values: dict[str, str]


class SettingsCopy(Entity, pk="GLOBAL_SETTINGS_{number:02d}", sk="GLOBAL_SETTINGS_{number:02d}"):
    """The settings once more: what is read, by each reader under another number."""

    number: int
    values: dict[str, str]
