"""A mutant: one deliberate bug in the code, as a replacement of text.

The text must occur exactly once, so that a mutant never quietly stops meaning what it says.
"""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "streamkit"


@dataclass(frozen=True)
class Mutant:
    """One bug. `row` is the row of the protocol's model that breaks the same way, if one does."""

    name: str
    file: str  # inside the package
    old: str
    new: str
    bug: str
    row: str = ""
    test: str = ""
    """The test that catches it, as pytest names it; it is run first."""

    def applied(self, package: Path = PACKAGE) -> str:
        """Return the file's text with the bug in it.

        Raises:
            ValueError: the text to replace is not there, or there more than once.
        """
        text = (package / self.file).read_text()
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: its text occurs {found} times in {self.file}")
        return text.replace(self.old, self.new)
