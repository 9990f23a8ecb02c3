"""Tell what a verification knows so far, and what its next pass looks for. Pure.

In: what each pass has found. Out: items that differ, copies that have no source for sure, and those
in doubt; all processes that share the verification come to the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from streamkit.migrate.verify.differences import ItemDifference
from streamkit.migrate.verify.findings import Findings, Found
from streamkit.migrate.verify.orphans import BUCKETS
from streamkit.migrate.verify.settling import is_sure
from streamkit.migrate.verify.verification_book import VerificationState

Copies = dict[int, ItemDifference]
"""Copies without a source, by the digests of their pairs."""


Wants = Callable[[int], bool]
"""Says of a pair's digest whether a search looks for its copy and its source."""


@dataclass(frozen=True)
class Known:
    """What the passes so far have found; the present one looks for what it `wants`, or everything.

    Copies that are `orphans` have no source for sure; those in `doubt` are looked at again. `more`
    are the buckets that are not searched yet.
    """

    first: Findings
    found: Found
    orphans: Copies
    doubt: Copies
    wants: Wants | None
    more: Sequence[frozenset[int]]


def _falls_in(buckets: frozenset[int], pair: int) -> bool:
    return pair % BUCKETS in buckets


def known_of(
    passes: Sequence[Findings], now: VerificationState, waived: frozenset[str], *, orphans: bool
) -> Known:
    """Return what is known after some passes; `orphans`: copies without a source are looked for."""
    first, *searches = passes
    found = Found(waived, beyond=first.beyond)
    for one in first.different:
        found.add(one)
    buckets = list(first.balance.rounds()) if orphans else []
    doubt, sure = Copies(), Copies()
    wants: Wants | None = None
    for number in range(now.rounds):
        wants, left = partial(_falls_in, buckets[number]), searches[number].search.left
        doubt |= left
        for one in left.values():
            found.add(one)
    for number, capture in enumerate(now.looks, now.rounds):
        wants = frozenset(doubt).__contains__
        left = searches[number].search.left
        sure |= {p: one for p, one in left.items() if is_sure(one, doubt[p], capture)}
        doubt = {p: one for p, one in left.items() if p not in sure}
    return Known(first, found, sure, doubt, wants, buckets[now.rounds :])
