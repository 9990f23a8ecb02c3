"""Signatures that AWS refuses for a while end no worker and lose nothing; for good they end it."""

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit import Add, App, Entity, Inserted
from streamkit.aws import connect
from streamkit.cli.failures import report
from streamkit.errors import ConfigurationError
from streamkit.local.errors import ApiError
from streamkit.local.transport import Response
from streamkit.testing import world
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.tables import streamed


@pytest.fixture(autouse=True)
def clients_from_the_start(monkeypatch):
    """Open a process's clients when it starts, as outside of simulations."""

    def opened(session, region):
        return connect(http_session=session, region=region)

    monkeypatch.setattr(world, "deferred", opened)


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str


class Total(Entity, pk="TOTAL", sk="TOTAL"):
    count: int = 0


class Refused(Process):
    """A process whose calls are refused for some seconds, as after a step of its clock."""

    code, until, refusals = "InvalidSignatureException", 0.0, 0

    async def intercept(self, call, apply):
        if anyio.current_time() < self.until:
            self.refusals += 1
            return Response.of_error(ApiError(self.code, "Signature expired"))
        return await super().intercept(call, apply)


def make_app():
    app = App("signed", table="Signed")

    @app.on
    def count(change: Inserted[Thing]) -> Add[Total]:
        return Add(Total.key(), count=1)

    return app


def put(there, number):
    item = {name: {"S": f"THING#{number}"} for name in ("PK", "SK")} | {"name": {"S": f"{number}"}}
    status, _ = there.engine.call("dynamodb", "PutItem", {"TableName": "Signed", "Item": item})
    assert status == 200


def things(there):
    return [item for item in there.items("Signed") if item["PK"]["S"].startswith("THING#")]


def counted(there):
    items = there.items("Signed")
    return sum(int(item["count"]["N"]) for item in items if item["PK"]["S"] == "TOTAL")


def refused_for(seconds, code="InvalidSignatureException"):
    """Refuse the calls of a running worker for some seconds.

    Returns:
        How it ended; how many calls were refused; what it had counted, and with the next worker.
    """

    async def scenario():
        there, process, error = World.create(1), Refused("worker"), None
        process.code = code
        there.engine.call("dynamodb", "CreateTable", streamed("Signed", "PK", "SK"))

        async def write(worker):
            for number in range(60):
                if number == 20:
                    process.until = anyio.current_time() + seconds
                put(there, number)
                await anyio.sleep(1)
            await anyio.sleep(60)
            worker.stop()

        try:
            await there.run_worker(make_app(), process=process, until_idle=False, started=write)
        except (ClientError, ConfigurationError) as raised:
            error = raised
        after, written = counted(there), len(things(there))
        await there.run_worker(make_app(), process=Process("next"))
        return error, process.refusals, (written, after, counted(there))

    return run_virtually(scenario)


@pytest.mark.parametrize("code", ["InvalidSignatureException", "ExpiredTokenException"])
@pytest.mark.parametrize("seconds", [0.1, 3.0, 30.0])
def test_a_worker_whose_signatures_are_refused_for_a_while_goes_on_and_loses_nothing(seconds, code):
    error, refusals, counts = refused_for(seconds, code)
    assert error is None
    assert refusals > 0
    assert counts == (60, 60, 60)


def test_a_worker_whose_signatures_are_refused_for_good_ends_and_the_next_one_has_all(capsys):
    error, _, (written, before, after) = refused_for(1e6)
    report(error)
    said = capsys.readouterr().err
    assert "the secret key is wrong, or this machine's clock is" in said
    assert "permission" not in said
    assert before < after == written


def test_a_wrong_key_is_said_at_the_first_call():
    async def scenario():
        there, process = World.create(1), Refused("worker")
        there.engine.call("dynamodb", "CreateTable", streamed("Signed", "PK", "SK"))
        process.until = anyio.current_time() + 1e6
        with pytest.raises((ClientError, ConfigurationError)):
            await there.run_worker(make_app(), process=process)
        return process.refusals

    assert run_virtually(scenario) == 1
