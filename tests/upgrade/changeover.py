"""A harness in which everything is replaced by the other version where a process stops.

    for _ in every_crash(scenario, partial(Changeover, module, "counting", "old"), part="operation"):
        pass

The worker and the operations are of the first version, until one of them is killed or stands still
at one of its calls. Its machine comes again with the other version: the worker is replaced, and the
operation begun again. What stood still thaws later, as a zombie of its own version.

A scenario's commands are called with the version, its app and its clients.
"""

import json
from collections import defaultdict

from streamkit import ConfigurationError
from streamkit.progress.actions import CONTROL_ATTRIBUTE
from streamkit.settings import Settings
from streamkit.testing.harness import Harness
from streamkit.testing.stops import Operations
from tests.upgrade.versions import VERSIONS

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)


class Changeover(Harness):
    """A harness of an app of a module, which `first` runs, and then the other version.

    Attributes:
        now: the name of the version that runs.
        stored: what is stored in control items, by kind: names of attributes, and what they hold
            if it is a state or a phase.
    """

    def __init__(self, module, make, first, **given):
        self.apps = {n: getattr(v.module_of(module), make)(**given) for n, v in VERSIONS.items()}
        self.now = first
        self._restarts = 0
        super().__init__(self.apps["new"], shards=1, settings=SETTINGS, lenient=True)
        self.worlds = {name: version.world(self.world) for name, version in VERSIONS.items()}
        self.world.run_worker = self._run_worker
        self.operations = _Both(self)
        self.stored = defaultdict(set)
        self.world.watchers.append(self._see)

    def items(self):
        """Return the application's items without the revisions that extremes carry.

        A rebuild that thaws before its first step builds all once more, to the same values.
        """
        return [
            {name: value for name, value in item.items() if not name.startswith("_")}
            for item in super().items()
        ]

    def change(self):
        """Let the other version run from now on."""
        self.now = "new" if self.now == "old" else "old"

    def _see(self, sighting):
        for write in sighting.writes:
            if write.is_control and write.new is not None:
                for name, value in write.new.items():
                    self.stored[write.kind].update(_said(name, value))

    def _run_worker(self, app, **named):
        if self.restarts > self._restarts:  # another worker takes the place of one that stopped
            self._restarts = self.restarts
            self.change()
        world = self.worlds[self.now]
        return type(world).run_worker(world, self.apps[self.now], **named)


def _said(name, value):
    """Yield the names in an attribute, and what it holds if that is a state; text may be JSON."""
    name = name.removeprefix(CONTROL_ATTRIBUTE)
    text = value.get("S", "")
    if text.startswith("{"):
        yield from _said_in(name, json.loads(text))
    else:
        yield f"{name}={text}" if name in _STATES else name


def _said_in(name, found):
    if isinstance(found, dict):
        for part, value in found.items():
            yield from _said_in(f"{name}.{part}", value)
    elif isinstance(found, list):
        for value in found:
            yield from _said_in(f"{name}[]", value)
    else:
        yield f"{name}={found}" if name.rpartition(".")[2] in _STATES else name


_STATES = {"state", "mode", "host", "phase", "desired", "stage"}
"""Whose values other versions have to know."""


class _Both(Operations):
    """Runs operations of the version that is now; what is begun again is begun by the other."""

    def __init__(self, harness):
        super().__init__(harness.world, harness._zombies)
        self._harness = harness

    async def _within(self, process, work):
        harness = self._harness
        if process.name == "operation again":
            harness.change()
            if harness.worker.runs:
                harness.worker.drop()
                harness.worker.ensure()
        name = harness.now
        async with harness.worlds[name].clients(process) as aws:
            try:
                return await work(VERSIONS[name], harness.apps[name], aws)
            except VERSIONS[name].part("ConfigurationError") as error:
                raise ConfigurationError(str(error)) from error  # whoever waits knows this one
