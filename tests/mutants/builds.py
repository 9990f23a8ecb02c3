"""Deliberate bugs in rebuilds of aggregates: the ledger, its scan, turning live and the sweep."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "build-without-capture",
        "aggregates/rebuilding.py",
        """            if generation.host != LAMBDA:  # functions see what those of before have passed over
                await capture(self.store, generation.number)
""",
        "",
        "the scan begins while shards still pass changes uncounted",
        row="A scan may start before T0",
    ),
    Mutant(
        "emptying-without-capture",
        "aggregates/rebuilding.py",
        """        if generation.host != LAMBDA:
            await capture(self.store, generation.number)
""",
        """        if generation.host != LAMBDA:
""",
        "a commit of before the build adds to what was emptied",
    ),
    Mutant(
        "build-scan-eventually-consistent",
        "migrate/segments.py",
        '            "ConsistentRead": True,\n',
        '            "ConsistentRead": False,\n',
        "the scan may count an image that no change of this build is going to take back",
        row="A eventually consistent scan",
    ),
    Mutant(
        "ledger-forgets-removals",
        "kinds/counting.py",
        "    return [*effects, Noted(written(entry.ref, LIVE))]\n",
        "    return [*effects, Noted(written(entry.ref, LIVE))] if after else effects\n",
        "a scanner that has read an item before its removal counts it afterwards",
        row="A removal deletes the entry",
    ),
    Mutant(
        "ledger-read-unchecked",
        "processing/ledger.py",
        "(_as_stored(stored),)",
        "()",
        "a change takes no notice of a scan that came in between",
        row="A commit not conditional on the entry read",
    ),
    Mutant(
        "ledger-ignored",
        "kinds/counting.py",
        "    seen = before if younger else read_entry(aggregate, entry.text)\n",
        "    seen = before\n",
        "the first change of an item counts its old image, whoever has counted that",
    ),
    Mutant(
        "scan-counts-again",
        "aggregates/census.py",
        "            entry.guards.append((Guard(absent),",
        "            _ = ((Guard(absent),",
        "the scan counts items that changes have counted",
    ),
    Mutant(
        "live-when-the-scan-is-done",
        "model/builds.py",
        "seen > build.scanned + TURN_SECONDS",
        "seen >= 0",
        "a shard trusts old images of changes that the scan has seen",
        row="B1 switch when the scan is done",
    ),
    Mutant(
        "live-shard-takes-no-notice-of-old-changes",
        "aggregates/turning.py",
        "            if record.created_at <= build.scanned + GUARD_SECONDS:\n",
        "            if record.created_at < 0:\n",
        "a change that was published very late is counted twice in silence",
        row="F the same without the guard",
    ),
    Mutant(
        "shard-takes-the-builds-state",
        "model/builds.py",
        '    return "live" if build_mark(aggregate, build.number) in live else "ledger"\n',
        '    return "live" if build.state == "counting" else "ledger"\n',
        "a shard that is behind is live because the scan is over",
        row="C split, child takes the build's state",
    ),
    Mutant(
        "ledger-swept-too-soon",
        "aggregates/sweeping.py",
        "        if not all(mark in cursor.live for cursor in cursors.values()):\n",
        "        if not any(mark in cursor.live for cursor in cursors.values()):\n",
        "a late child of a shard that ended before it turned finds no ledger",
        row="D sweep when the scan is done",
    ),
    Mutant(
        "segments-outlive-their-build",
        "aggregates/rebuilding.py",
        "                await self._segments(number, segments).delete()\n",
        "                pass\n",
        "a scanner that froze counts for a build that is over",
        row="E new build, same keys emptied, no fence",
    ),
    Mutant(
        "build-keeps-parked-changes",
        "aggregates/clearing.py",
        "                await self._drop(lane.name)\n",
        "                pass\n",
        "a change that was parked before is counted on top of its item",
        row="E new build retries the old one's parked",
    ),
    Mutant(
        "builds-share-a-ledger",
        "processing/ledger.py",
        "    kind = ledger_kind(aggregate, build, digest[0] % PARTITIONS)\n",
        "    kind = ledger_kind(aggregate, 0, digest[0] % PARTITIONS)\n",
        "a new build believes what the last one has counted",
        row="E new build keeps the ledger",
    ),
    Mutant(
        "build-keeps-the-aggregate",
        "aggregates/clearing.py",
        "        return await self._delete_items()\n",
        "        return 0\n",
        "what was stored stays, and is counted on top",
        row="E new build keeps the aggregate",
    ),
    Mutant(
        "parked-passed-while-building",
        "kinds/counting.py",
        "        commutes=False,\n",
        "",
        "a later change of an item is counted before one that is parked",
        row="G parked change passed while building",
    ),
    Mutant(
        "parked-retried-as-live",
        "processing/parking.py",
        "    if parked.build:\n",
        "    if not parked:\n",
        "a change that was parked while building is counted by its old image",
        row="G holds its lane, retried as the cursor is",
    ),
)
