"""Routes and channels: where a host's changes go, and where its sends and counts go."""

from dataclasses import dataclass, field

from streamkit.core.cascades import Cascades
from streamkit.core.tables import Tables
from streamkit.core.tracing import NO_TRACING, Tracing
from streamkit.observe.meters import UNMETERED, Meters
from streamkit.sinks.outlets import Outlets
from streamkit.stream.decode import Router


@dataclass(frozen=True)
class Routes:
    """How records are told apart, which tables effects go to, and what these trigger."""

    router: Router
    tables: Tables
    cascades: Cascades = field(default_factory=Cascades)


@dataclass(frozen=True)
class Channels:
    """A host's open sinks, its instruments, and its traces."""

    outlets: Outlets = field(default_factory=Outlets)
    meters: Meters = UNMETERED
    tracing: Tracing = NO_TRACING
