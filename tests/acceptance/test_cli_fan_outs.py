"""Fan-outs from the command line: listed with their progress, and cancelled."""

import time

DEADLINE = 120.0

APP = """
import os

from streamkit import App, Entity, Inserted, Put, Query

app = App("mail", table=os.environ["SHOP_TABLE"])


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL"):
    deal: str


class Watch(Entity, pk="WATCH", sk="USER#{user}"):
    user: str


class Note(Entity, pk="NOTE#{user}", sk="DEAL#{deal}"):
    user: str
    deal: str


def watchers(change: Inserted[Deal]) -> Query[Watch]:
    return Watch.query()


@app.fan_out(watchers, rate=2, inline=0)
def notify(change: Inserted[Deal], to: Watch) -> Put[Note]:
    return Put(Note(user=to.user, deal=change.new.deal))
"""


def write(shop, pk, sk, **fields):
    item = {"pk": {"S": pk}, "sk": {"S": sk}}
    item |= {name: {"S": text} for name, text in fields.items()}
    shop.dynamodb.put_item(TableName=shop.table, Item=item)


def listed(shop):
    return shop.json("fan-outs", "list", "mail")


def test_a_fan_out_under_way_is_listed_with_its_progress_and_cancelled(shop):
    (shop.folder / "mail.py").write_text(APP)
    for number in range(40):
        write(shop, "WATCH", f"USER#{number:02}", user=f"{number:02}")
    with shop.start("worker", "mail") as worker:
        worker.wait_for("shard.taken")
        assert "no fan-out" in shop.run("fan-outs", "list", "mail").stdout
        write(shop, "DEAL#1", "DEAL", deal="1")
        end = time.monotonic() + DEADLINE
        while not any(fan_out["served"] for fan_out in listed(shop)):
            assert time.monotonic() < end
            time.sleep(0.2)
        (found,) = listed(shop)
        shown = shop.run("parked", "list", "mail").stdout
        assert "0 parked in 0 queues; 1 changes in 1 fan-outs under way\n" in shown
        assert "is served" in shown
        assert "redrive" not in shown
        assert "next: streamkit fan-outs list mail\n" in shown
        assert (found["handler"], found["state"], found["parked"]) == ("notify", "serving", 0)
        assert 0 < found["served"] < 40
        assert found["share"] == found["served"] / 40
        assert found["left"] > 0
        text = shop.run("fan-outs", "list", "mail").stdout
        assert (found["queue"] in text, "parked show" in text) == (True, False), "it is not stuck"
        shown = shop.run("status", "mail").stdout
        assert found["queue"] in shown
        assert "SERVED  DONE  LEFT  A SECOND" in shown
        assert shop.run("fan-outs", "cancel", "mail", "--queue", found["queue"]).returncode == 0
        assert listed(shop) == []
        again = shop.run("fan-outs", "cancel", "mail", "--queue", found["queue"])
        assert (again.returncode, "no such fan-out" in again.stderr) == (5, True)
    assert shop.item("NOTE#00", "DEAL#1")
    assert not shop.item("NOTE#39", "DEAL#1")
