"""Bugs on a change's way from dispatch to a plan: lanes, folds, reads, parking, redriving."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- lanes and runs ----------------------------------------------------------------------------
    Mutant(
        "lane-order-broken",
        "processing/dispatch.py",
        "            for lane in into_lanes(runs):\n",
        "            for lane in ([run] for run in runs):\n",
        "changes of one item run beside each other",
        "A7",
    ),
    Mutant(
        "lane-reversed",
        "processing/lanes.py",
        "    return [[run for _, run in sorted(lane, key=_number)] for lane in different.values()]\n",
        "    return [[run for _, run in sorted(lane, key=_number)][::-1] for lane in different.values()]\n",
        "changes of one item run in the wrong order",
        "A7",
    ),
    Mutant(
        "pending-effects-not-seen",
        "processing/reading.py",
        "        if not self.works:\n            return _NOTHING\n",
        "        return _NOTHING\n",
        "a handler reads the table without what earlier changes of its page will write",
    ),
    Mutant(
        "read-not-checked",
        "processing/outcome.py",
        "        if guards:\n",
        "        if guards and not outcome.handler.is_async:\n",
        "what a handler has read is not checked when its result is committed",
        "peers",
    ),
    Mutant(
        "stale-read-planned",
        "processing/planning.py",
        "                if read.seen != written.get(read.ref, ()):\n",
        "                if read.seen != written.get(read.ref, ()) and not outcome.effects:\n",
        "a result is committed although what it read came out otherwise: no planning again",
        "A7",
    ),
    Mutant(
        "retry-without-running-again",
        "processing/refusal.py",
        '    if way == "retry":\n        outcome.waiting = True\n',
        '    if way == "retry":\n        outcome.reads = ()\n',
        "a result whose read was stale is committed as it is",
    ),
    Mutant(
        "omit-is-skip",
        "processing/refusal.py",
        "        _omit(outcome, ways, position, schema)\n",
        "        outcome.drop()\n",
        "one effect that may be omitted takes its whole result with it",
    ),
    Mutant(
        "skip-is-omit",
        "processing/refusal.py",
        '    elif way == "skip":\n        outcome.drop()\n',
        '    elif way == "skip":\n        _omit(outcome, ways, position, schema)\n',
        "a result is applied in part",
    ),
    Mutant(
        "omitted-for-ever",
        "processing/dispatch.py",
        "        outcome.failure, outcome.omitted = None, frozenset()\n",
        "        outcome.failure = None\n",
        "an effect omitted from one run is left out of the next one's, whatever that is",
    ),
    Mutant(
        "old-contribution-ignored",
        "kinds/contributions.py",
        "    return between(contributions(aggregate, old), contributions(aggregate, new))\n",
        "    return between({}, contributions(aggregate, new))\n",
        "an aggregate adds the new image and does not take the old one away",
        "peers",
    ),
    # -- fold and plan -----------------------------------------------------------------------------
    Mutant(
        "merge-across-a-condition",
        "processing/fold.py",
        "    if second.guards:\n        return _merge_present(first, second)\n",
        "    if second.guards:\n        second = second.copy()\n",
        "an effect with a condition is folded into what comes before it",
        "peers",
    ),
    Mutant(
        "condition-lost-in-a-fold",
        "processing/fold.py",
        "    merged.guards = [*earlier.guards]\n",
        "    merged.guards = []\n",
        "a put that follows a conditional effect drops its condition",
    ),
    Mutant(
        "first-put-wins",
        "processing/fold.py",
        "    if second.verb in (Verb.PUT, Verb.DELETE):\n        return _with_guards(second, first)\n",
        "    if second.verb is first.verb is Verb.PUT:\n        return first\n"
        "    if second.verb in (Verb.PUT, Verb.DELETE):\n        return _with_guards(second, first)\n",
        "of two puts of one item the first one wins",
    ),
    Mutant(
        "read-lost-beside-a-write",
        "processing/fold.py",
        "    joined.guards += read.guards\n",
        "",
        "a read of an item that the commit also writes is not checked",
    ),
    Mutant(
        "result-cut-in-two",
        "processing/planning.py",
        "                done |= self._handler_by_handler(work, todo, draft, only_one=split)\n"
        "                if any(_mark(work, outcome) not in done for outcome in todo):\n"
        "                    break\n",
        "                done |= self._handler_by_handler(work, todo, draft, only_one=split)\n",
        "the position passes a change whose last handlers did not fit",
        "D13",
    ),
    Mutant(
        "done-mark-not-read",
        "processing/planning.py",
        "            if done:\n"
        "                todo = [outcome for outcome in todo if _mark(work, outcome) not in done]\n",
        "",
        "a handler that is done with a change takes effect again",
        "D13",
    ),
    Mutant(
        "one-item-too-many",
        "processing/planning.py",
        "        if size > BYTES_MAX or items > self.room:\n",
        "        if size > BYTES_MAX or items > self.room + 1:\n",
        "a commit has 101 actions",
        "peers",
    ),
    # -- parking -----------------------------------------------------------------------------------
    Mutant(
        "successor-let-through",
        "processing/planning.py",
        "        return lane in self.holds or lane in draft.held\n",
        "        return lane in self.holds\n",
        "a change overtakes the parked one before it in the same commit",
        "C7",
    ),
    Mutant(
        "hold-not-remembered",
        "processing/planning.py",
        "        return lane in self.holds or lane in draft.held\n",
        "        return lane in draft.held\n",
        "a change overtakes a parked one of an earlier commit",
        "C7",
    ),
    Mutant(
        "holds-not-written",
        "processing/commit.py",
        '"done": cursor.done, "holds": cursor.holds, ',
        '"done": cursor.done, ',
        "the cursor does not name its holds: the next owner lets successors through",
        "C7",
    ),
    Mutant(
        "holds-not-loaded",
        "running/pipeline.py",
        "        await self.stage.held.load(cursor.holds)\n",
        "",
        "a new owner does not know which lanes are held",
        "C7",
    ),
    Mutant(
        "queue-without-a-lane",
        "processing/parking.py",
        "    if guarded:\n",
        "    if guarded and not lane:\n",
        "a change queues behind a lane that was lifted, and is stranded",
        "C6",
    ),
    Mutant(
        "park-over-a-lane",
        "processing/parking.py",
        "    head.guards.append((Guard(absent), GuardSource(parked.position, lane, LANE)))\n",
        "",
        "a lane begins anew over one that exists, and its changes are stranded",
        "C5",
    ),
    Mutant(
        "parked-out-of-order",
        "processing/parking.py",
        '    link.sets["next"] = {"S": parked.position}\n',
        "",
        "a parked change does not name the next one",
    ),
    # -- redriving ---------------------------------------------------------------------------------
    Mutant(
        "hold-lifted-with-a-queued-change",
        "parked/unparking.py",
        "    action.guards.append((Guard(is_first & is_last), source))\n",
        "    action.guards.append((Guard(is_first), source))\n",
        "a lane is lifted while a change queues behind it",
        "C5",
    ),
    Mutant(
        "redrive-checks-neither",
        "parked/unparking.py",
        "        everything = [advance, *unhold, *removal, *effects]\n",
        "        for action in (advance, *removal):\n"
        "            action.guards.clear()\n"
        "        everything = [advance, *unhold, *removal, *effects]\n",
        "a redrive checks neither the lane's head nor that its change is still parked",
        "C2 C4",
    ),
    Mutant(
        "large-redrive-ignores-the-head",
        "parked/unparking.py",
        "    sent = await transact(store.dynamodb, schemas, [advance, *effects], rng)\n",
        "    advance.guards.clear()\n"
        "    sent = await transact(store.dynamodb, schemas, [advance, *effects], rng)\n",
        "a redrive of a large result does not check the lane's head",
        "C4",
    ),
    Mutant(
        "redrive-in-two-transactions",
        "parked/unparking.py",
        "        if len(everything) > ACTIONS_MAX or size > BYTES_MAX:\n",
        "        if effects:\n"
        "            sent = await transact(store.dynamodb, schemas, effects, rng)\n"
        "            if sent is not None:\n"
        "                return sent\n"
        "            everything = [advance, *unhold, *removal]\n"
        "        if len(everything) > ACTIONS_MAX or size > BYTES_MAX:\n",
        "the effects of a redrive and the end of its parking are two transactions",
        "C2",
    ),
    Mutant(
        "chunk-cleared-while-held",
        "parked/unparking.py",
        "        unhold.append(Action(advance.ref, Verb.CHECK, guards=gone))  # not if it was held again\n",
        "        del gone\n",
        "a lane held again meanwhile is taken off its holds after a large redrive",
        "C5",
    ),
)
