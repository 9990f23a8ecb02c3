"""Deliberate bugs in migrations: what holds a write, what turns pairs around, and the phases."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "reads-unguarded",
        "migrate/calls.py",
        "    for attribute in sorted(reads - schema.key_attributes):",
        "    for attribute in sorted(reads & set()):",
        "what an application writes between the read and the write is lost",
    ),
    Mutant(
        "refused-image-unread",
        "migrate/in_place.py",
        "            image = plain(now)\n",
        "",
        "an item that changed once is tried with what it was, until it is given up",
    ),
    Mutant(
        "targets-of-an-unread-source",
        "migrate/pairs.py",
        "frozenset(image) if whole else rewrite.reads)",
        "frozenset())",
        "a target is made of what its source no longer is",
    ),
    Mutant(
        "turned-since-unnoticed",
        "migrate/pairs.py",
        '            condition += f" AND {terms.equals(MOVED, moved)}"\n',
        "            del moved\n",
        "a process that is late makes a part again that was deleted after the switch",
    ),
    Mutant(
        "copies-taken-for-sources",
        "migrate/switched.py",
        "if not transform.of(plain(source)).targets:",
        "if False:",
        "the end deletes copies whose keys look like their sources'",
    ),
    Mutant(
        "removals-come-back",
        "migrate/switched.py",
        'if transform.migration.mode == "rekey" and not actions:',
        "if False:",
        "a rollback brings back what was deleted after the switch",
    ),
    Mutant(
        "late-mirror",
        "migrate/switched.py",
        "pairs.calls.transact([holds, update, *checks])",
        "pairs.calls.transact([update, *checks])",
        "a process that is late gives a contracted source its parts back",
    ),
    Mutant(
        "begun-anew-while-turned",
        "migrate/running.py",
        'phase: Phase = now.phase if stays else "capturing"',
        'phase: Phase = "capturing"',
        "lost changes lead from a rollback to rolled back, and nothing was",
    ),
    Mutant(
        "failed-switch-passed-over",
        "migrate/running.py",
        "elif state.phase in _TURNING and",
        "elif state.phase == self and",
        "items that failed to switch are left behind in silence",
    ),
    Mutant(
        "entity-of-any-template",
        "migrate/matching.py",
        "return self._fits(spec, pk, sk) and not any(self._fits(s, pk, sk) for s in self._nearer)",
        "return self._fits(spec, pk, sk)",
        "items of an entity with longer keys are rewritten, too",
    ),
)
