"""Hosts for trials in which a fleet changes from one version of streamkit to the other and back.

In: an app's module, and which versions run when. Out: hosts as `streamkit.testing.trial` takes
them. A version ends as a machine does whose power is cut, in the middle of whatever it is at; the
next one begins while it still runs, or after it.
"""

import random
from functools import partial

import anyio

from tests.simulation.jobs import Jobs
from tests.simulation.movers import ToLambda, ToWorkers
from tests.upgrade.versions import VERSIONS

LEG_SECONDS = 80.0
"""How long a leg lasts: what a killed version had is taken over after a lease, which is 30 s."""
_CLASSES = {"crew": "Crew", "functions": "Functions"}


class Market:
    """The app of `conformance` in one version, and the world as that sees it.

    What it tells the outside is recorded where the app of the trial, `app`, has it recorded. Its
    commits are counted, and the halves of units that all its calls take.
    """

    def __init__(self, version, module, app, world, met, faults):
        self.part, self.met, self.faults = version.part, met, faults
        self.world = version.world(world)
        self.app = (
            app if module is version.module_of(module) else self._deployed(version, module, app)
        )
        world.engine.observers.append(partial(self._note, version.name))

    def _deployed(self, version, module, app):
        made = version.module_of(module)
        deployed = made.make_app(**({"tables": list(app.tables)} if app.tables else {}))
        if app.migrations:
            made.add_migrations(deployed)
        deployed.sinks[:] = app.sinks
        deployed.mailer.sent = app.mailer.sent
        return deployed

    def _note(self, name, call):
        if self.world._caller is not None:
            self.met[f"{name} committed"] += call.operation == "TransactWriteItems"
            self.met[f"{name} units"] += round(2 * sum(call.units.values()))

    def host(self, kind):
        """Return a `crew` of workers, or `functions`."""
        return self.part(_CLASSES[kind])(self.app, self.world, self.met, self.faults)


def markets(*parts):
    """Return the app in both versions, by their names."""
    return {name: Market(version, *parts) for name, version in VERSIONS.items()}


class Journey:
    """Runs one version after the other, or both: the names of each leg's versions, with a `+`."""

    def __init__(self, module, kind, legs, app, world, met, faults):
        self.markets = markets(module, app, world, met, faults)
        self.kind, self.legs = kind, legs
        self.running = {}
        self.arrived = anyio.Event()

    def start(self, group, workers):
        self.group = group
        group.start_soon(self._travel)

    async def _travel(self):
        for number, leg in enumerate(self.legs):
            if number:
                await anyio.sleep(LEG_SECONDS)
            wanted = leg.split("+")
            for name in self.running.keys() - set(wanted):
                self.running.pop(name).close()
            for name in sorted(set(wanted) - self.running.keys()):
                self.running[name] = self.markets[name].host(self.kind)
                self.running[name].start(self.group, 1)
        self.arrived.set()

    def crash(self, rng):
        if self.running:
            self.running[rng.choice(sorted(self.running))].crash(rng)

    async def settle(self):
        await self.arrived.wait()
        for _ in range(2):  # what one of them has committed last is a change for the other
            for host in list(self.running.values()):
                await host.settle()

    def close(self):
        for host in self.running.values():
            host.close()


def journey(module, kind, *legs):
    """Return what makes the host of a trial: `kind` is `crew` or `functions`."""
    return partial(Journey, module, kind, legs)


class Handover:
    """A move that one version begins; where it is killed, the other one begins it again.

    The first host is the released version's, the second one runs the version under test.
    """

    def __init__(self, app, world, met, faults, *, kill, module, killed):
        super().__init__(app, world, met, faults, kill=kill)
        self.markets, self.killed = markets(module, app, world, met, faults), killed
        first = "functions" if self.name == "workers" else "crew"
        setattr(self, first, self.markets["old"].host(first))
        self.current = self.first

    async def _try(self, dies_at):
        other = {"old": "new", "new": "old"}[self.killed]
        mover = self.markets[other if dies_at is None else self.killed]
        self.app, self.world = mover.app, mover.world
        self.commands = {to: mover.part(f"move_to_{to}") for to in ("workers", "lambda")}
        return await super()._try(dies_at)


class HandedToWorkers(Handover, ToWorkers):
    """From functions of the released version to workers of the one under test."""


class HandedToLambda(Handover, ToLambda):
    """From workers of the released version to functions of the one under test."""


class SharedJobs(Jobs):
    """Each invocation of a migration's job is of the one or the other version.

    Items are moved by the new version alone: the released one keeps no pair records.
    """

    def __init__(self, base, seconds, last, module, app, world, met, faults):
        super().__init__(base, seconds, last, app, world, met, faults)
        self._markets = markets(module, app, world, met, faults)
        self._rng = random.Random("jobs")

    def _choose(self, number):
        name = self._rng.choice(("new", "old"))
        market = self._markets["new" if self._app.migrations[number].moves else name]
        self._app, self._world = market.app, market.world
        self._begin, self._slice = market.part("begin"), market.part("process_slice")
