"""A system: an app, the table it works on, and an application that plays its users."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamkit import App, TableShape
from streamkit.testing.traffic import Traffic


@dataclass(frozen=True)
class System:
    """One of the examples, ready to be played or tried.

    Attributes:
        app: the app that runs.
        traffic: a function that makes the application of one run.
        shape: the shape of the app's table.
        others: the shapes of other tables, by name.
    """

    app: App
    traffic: Callable[[], Traffic]
    shape: TableShape = field(default_factory=TableShape)
    others: Mapping[str, TableShape] = field(default_factory=dict)
