"""`streamkit lambda filter` prints what the mapping takes, and says on stderr what is coarser."""

import json

MANY = """
from streamkit import App, Change, Entity

app = App("many", table="{table}")


def make(number):
    class One(Entity, pk=f"KIND{{number}}#{{{{a}}}}", sk=f"SORT{{number}}#{{{{a}}}}"):
        a: str

    @app.on(name=f"on{{number}}")
    def handle(change: Change[One]) -> None:
        return None


for number in range(7):
    make(number)
"""


def patterns(found):
    return [json.loads(one["Pattern"]) for one in found["Filters"]]


def test_the_criteria_of_an_app_are_json_that_a_mapping_takes(shop):
    done = shop.run("lambda", "filter", "shop")
    assert (done.returncode, done.stderr) == (0, "")
    (pattern,) = patterns(json.loads(done.stdout))
    keys = pattern["dynamodb"]["Keys"]
    assert [rule["prefix"] for rules in keys.values() for rule in rules["S"]] == ["ORDER#", "ORDER"]


def test_what_does_not_fit_is_coarser_and_said_on_stderr(shop):
    (shop.folder / "many.py").write_text(MANY.format(table=shop.table))
    done = shop.run("lambda", "filter", "many")
    assert done.returncode == 0, done.stderr
    assert "7 patterns" in done.stderr
    (pattern,) = patterns(json.loads(done.stdout))
    (rules,) = pattern["dynamodb"]["Keys"].values()
    assert [rule["prefix"] for rule in rules["S"]] == [f"KIND{number}#" for number in range(7)]
    fine = shop.run("lambda", "filter", "many", "--filters", "10")
    assert len(patterns(json.loads(fine.stdout))) == 7
    assert fine.stderr == ""
