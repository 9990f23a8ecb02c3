"""Hosts for trials in which a fleet changes from one version of streamkit to the other and back.

In: an app's module, and which versions run when. Out: hosts as `streamkit.testing.trial` takes
them. A version ends as a machine does whose power is cut, in the middle of whatever it is at; the
next one begins while it still runs, or after it.
"""

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from streamkit.aws_lambda.migration import process_slice
from streamkit.migrate import commands
from streamkit.moving import move_to_lambda, move_to_workers
from streamkit.testing.crew import Crew
from streamkit.testing.hosts import Functions
from tests.simulation.jobs import Jobs
from tests.simulation.movers import ToLambda, ToWorkers
from tests.upgrade.versions import app_before, before

LEG_SECONDS = 80.0
"""How long a leg lasts: what a killed version had is taken over after a lease, which is 30 s."""


@dataclass
class Version:
    """One version of streamkit in a world: its app, and that world as it sees it."""

    app: Any
    world: Any
    met: Any
    faults: Any
    crew: Any
    functions: Any
    commands: dict[str, Any]

    @property
    def parts(self):
        return self.app, self.world, self.met, self.faults

    def host(self, kind):
        return {"crew": self.crew, "functions": self.functions}[kind](*self.parts)


def versions_of(deployed, app, world, met, faults):
    """Return both versions by name, `deployed` as the app that the released one runs.

    What each of them commits is counted in `met`.
    """
    moves = {"workers": move_to_workers, "lambda": move_to_lambda}
    jobs = {"begin": commands.begin, "slice": process_slice}
    new = Version(app, world, met, faults, Crew, Functions, moves | jobs)
    moving, migrating = before("moving"), before("migrate.commands")
    moves = {"workers": moving.move_to_workers, "lambda": moving.move_to_lambda}
    jobs = {"begin": migrating.begin, "slice": before("aws_lambda.migration").process_slice}
    old = Version(
        deployed,
        world_before(world),
        met,
        faults,
        before("testing.crew").Crew,
        before("testing.hosts").Functions,
        moves | jobs,
    )
    versions = {"new": new, "old": old}

    def note(call):
        for name, version in versions.items():
            commits = call.operation == "TransactWriteItems" and version.world._caller is not None
            met[f"{name} committed"] += commits

    world.engine.observers.append(note)
    return versions


def world_before(world):
    """Return the same world as the released version sees it: its own clients, the same engine."""
    made = before("testing.world").World
    return made(world.engine, world.control, world.clock, world.rng, _clocks=world._clocks)


def market_before(app, module):
    """Return the app of `conformance` as it is deployed; what it tells the outside is shared."""
    deployed = app_before(module).make_app(**({"tables": list(app.tables)} if app.tables else {}))
    if app.migrations:
        app_before(module).add_migrations(deployed)
    deployed.sinks[:] = app.sinks  # what records in their place, too
    deployed.mailer.sent = app.mailer.sent
    return deployed


class Journey:
    """Runs one version after the other, or both: the names of each leg's versions, with a `+`."""

    def __init__(self, module, kind, legs, app, world, met, faults):
        deployed = market_before(app, module)
        self.versions = versions_of(deployed, app, world, met, faults)
        self.kind, self.legs, self.met = kind, legs, met
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
                self.running[name] = self.versions[name].host(self.kind)
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
        self.versions = versions_of(market_before(app, module), app, world, met, faults)
        self.killed = killed
        hosts = {"lambda": "functions", "workers": "crew"}
        old = next(kind for name, kind in hosts.items() if name != self.name)
        setattr(self, old, self.versions["old"].host(old))
        self.current = self.first

    async def _try(self, dies_at):
        other = {"old": "new", "new": "old"}[self.killed]
        version = self.versions[other if dies_at is None else self.killed]
        self.app, self.world, self.commands = version.app, version.world, version.commands
        return await super()._try(dies_at)


class HandedToWorkers(Handover, ToWorkers):
    """From functions of the released version to workers of the one under test."""


class HandedToLambda(Handover, ToLambda):
    """From workers of the released version to functions of the one under test."""


class SharedJobs(Jobs):
    """Each invocation of a migration's job is of the one or the other version."""

    def __init__(self, base, seconds, last, module, app, world, met, faults):
        super().__init__(base, seconds, last, app, world, met, faults)
        self._versions = versions_of(market_before(app, module), app, world, met, faults)
        self._rng = random.Random("jobs")

    async def _invoke(self, number):
        version = self._versions[self._rng.choice(("new", "old"))]
        self._app, self._world = version.app, version.world
        self._begin, self._slice = version.commands["begin"], version.commands["slice"]
        return await super()._invoke(number)
