"""Deliberate bugs in fan-outs, mirrors, derived items and what is sent."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- fan-outs ----------------------------------------------------------------------------------
    Mutant(
        "fan-out-place-unchecked",
        "fan_outs/broadcasting.py",
        "(Guard(is_first & _is_at(place)), source)",
        "(Guard(is_first), source)",
        "two who serve one audience both serve the same recipients",
    ),
    Mutant(
        "fan-out-token-ahead",
        "fan_outs/broadcasting.py",
        "ahead.after if last else taken[-1].recipient.token",
        "ahead.after",
        "the place written is what was read, not what was served: recipients are left out",
    ),
    Mutant(
        "recipients-lanes-unknown",
        "fan_outs/broadcasting.py",
        "                    self.set_aside(fanned.held.name, lanes)\n",
        "                    pass\n",
        "parked recipients are not tried again before their shard has another owner",
    ),
    Mutant(
        "parked-twice-is-overtaken",
        "fan_outs/broadcasting.py",
        "elif fanned.held.name in {source.handler for source in verdict.sources}:",
        "elif any(source.effect == LANE for source in verdict.sources):",
        "a poison recipient that is in the audience twice stops the fan-out for good",
    ),
    Mutant(
        "unreadable-recipient-stops-all",
        "kinds/audience.py",
        "            return Recipient(None, token, name, key, error)\n",
        "            raise error\n",
        "a recipient that does not fit its entity stops the audience",
    ),
    Mutant(
        "one-refusal-drops-the-audience",
        "processing/refusal.py",
        '    elif way != "omit" and outcome.handler.broadcast is not None:\n',
        '    elif way == "omit" and outcome.handler.broadcast is not None:\n',
        "a condition that fails for one recipient of a small audience drops all of them",
    ),
    Mutant(
        "fan-out-never-breaks",
        "fan_outs/serving.py",
        "if fanned.breaks and len(batch) >= LEAST and 2",
        "if len(batch) < LEAST < 0 and 2",
        "a bad release parks everybody, one by one",
    ),
    Mutant(
        "fan-out-forgets-its-images",
        "processing/planning.py",
        "        lasts = outcome.deferred or outcome.handler.broadcast is not None\n",
        "        lasts = False\n",
        "a fan-out that takes longer than the stream's retention loses its change",
    ),
    # -- what is sent ------------------------------------------------------------------------------
    Mutant(
        "inline-recipients-without-names",
        "kinds/fan_out.py",
        "_addressed(effect, recipient.name) for effect",
        '_addressed(effect, "") for effect',
        "a delivery has another key inline than in the lane",
    ),
    Mutant(
        "recipients-in-one-group",
        "processing/sending.py",
        "numbers[name], group_of(key, name)",
        "numbers[name], group_of(key)",
        "recipients wait for each other, and have one document's id",
    ),
    Mutant(
        "turn-uses-up-the-time",
        "sinks/batching.py",
        "anyio.fail_after(seconds * _TURN)",
        "anyio.fail_after(seconds)",
        "a delivery fails because others are in front of it",
    ),
    Mutant(
        "audience-without-an-end",
        "kinds/audience.py",
        "            with anyio.move_on_after(self.seconds) as scope:\n",
        "            with anyio.move_on_after(math.inf) as scope:\n",
        "audiences that do not come keep all other lanes from being tried",
    ),
    # -- mirrors and derived items -----------------------------------------------------------------
    Mutant(
        "entered-without-a-check",
        "kinds/mirror.py",
        "        if not effects and not keep:\n",
        "        if not effects:\n",
        "a copy enters itself although its source has changed since it was read",
        "2",
    ),
    Mutant(
        "reads-of-others-forgotten",
        "kinds/mirror.py",
        "            table.forget_reads(noted)\n",
        "            table.forget_reads(0)\n",
        "a copy that is right already takes away the checks of the others",
        "2",
    ),
    Mutant(
        "derived-over-anything",
        "kinds/derive.py",
        "        if old.get(key) != item:\n            free = any_of(absent, mine, _equals(item))\n",
        "        if old.get(key) != item:\n            free = any_of(absent, mine, Attr(OWNER).not_exists())\n",
        "a derived item overwrites one of the application's",
    ),
)
