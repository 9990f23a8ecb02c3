"""The questions of an operator, each put to a shop in trouble, and what the answer must hold."""

import re

from tests.pages import section

SLOW = "Why is it slow: a pause, throttled calls, one shard, a handler that its shard waits for?"
ANSWERS = {
    "How far behind is it?": r"lag \d+ s",
    "Who reads which shard?": r"shardId-\S+ +active +\S+/\d+/[0-9a-f]{12}",
    "Will changes be lost, and when?": r"2[34]\.\d h until the oldest unread change is trimmed",
    "Were any lost?": r"no change is known to be lost",
    SLOW: r"lag .* (\d+) throttled calls.*paused",
    "What is parked, and why?": r"journal +Order +RuntimeError",
    "What does not heal by itself?": r"journal +Order +RuntimeError .* stuck ",
    "What became of this one item?": r"shop/journal .* stuck +1 +RuntimeError[\s\S]*inserted",
    "Which release is live?": r"shop +\S+ +1 +workers +1 +1 ",
    "What does it cost?": r"A day, as the workers have counted[\s\S]*shop +1 +\d+ s +[1-9]",
    "Is the count right?": r"every group is what its items say",
    "Is a migration running?": r"shop has no migration",
    "Is a rebuild, a move or a rewind under way, and who began it?": r"no migration, .* or rewind is under way",
    "May it do what it must?": r"(?m)^ok$",
}
OURS = {
    "deals:app": "shop",
    "BrandLikes": "PerStatus",
    "'BRANDLIKE#APPLE#ann' 'BRANDLIKE#APPLE#ann'": "ORDER#1 ORDER",
}


def questions():
    text = section("docs/operating.md", "Questions at three in the morning")
    return dict(re.findall(r"^\| (.+\?) \| `streamkit (.+)` \|$", text, re.MULTILINE))


def asked(shop, command):
    for theirs, ours in {**OURS, "BigTimeDeals": shop.table}.items():
        command = command.replace(theirs, ours)
    extra = ["--looks", "1"] if "--watch" in command else []
    done = shop.run(*command.split(), *extra)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told_throttled(shop, command):
    return int(re.search(ANSWERS[SLOW], asked(shop, command))[1])


def counted_throttled(shop):
    return sum(worker["throttled"] for worker in shop.json("status", "shop")["workers"])


def test_each_question_is_answered_by_its_one_command(shop):
    found = questions()
    assert set(found) == set(ANSWERS)
    shop.touch("broken")
    shop.put(1, "A")
    with shop.start("worker", "shop") as worker:
        worker.wait_for("handler.failed")
        shop.remove("broken")
        shop.put(2, "X")
        shop.until(lambda: shop.journal(2) == "X")
        shop.until(lambda: shop.json("cost", "shop")["counted"][0]["workers"])
        wrong = {
            question: answer
            for question, command in found.items()
            if question != SLOW
            if not re.search(ANSWERS[question], answer := asked(shop, command))
        }
        assert wrong == {}
        assert shop.run("consumers", "pause", "shop").returncode == 0
        # Other commands read the shard, too: a throttled call may be among them, and is counted.
        shop.until(lambda: told_throttled(shop, found[SLOW]) == counted_throttled(shop))
