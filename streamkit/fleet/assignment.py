"""Assignment: which worker each shard belongs to. Pure; every worker computes the same.

Shards are assigned by the root of their lineage, which an only child inherits from its parent. So a
stream that rolls over moves no shard. Rendezvous hashing gives each root an order of preference
among the workers. The first worker with room gets the root; the room of a worker is its share by
weight.

    the same members, other roots      what was assigned stays, but for a few at the borders
    a worker more or less              only claims move a shard that another worker reads, see
                                       `sharing`
"""

import hashlib
import math
from collections.abc import Iterable, Mapping

_MASK = (1 << 64) - 1


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _mixed(first: int, second: int) -> int:
    """Mix two hashes with the steps of SplitMix64; it is cheap, because it runs very often."""
    mixed = ((first ^ second) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return mixed ^ (mixed >> 27)


def share(roots: int, weights: Mapping[str, int], worker: str) -> float:
    """Return a worker's part of a number of roots, by weight."""
    return roots * weights[worker] / sum(weights.values())


def assign(roots: Iterable[str], weights: Mapping[str, int]) -> dict[str, str]:
    """Return the worker of each lineage root.

    Args:
        roots: each root once, in any order.
        weights: the workers, with how much each takes in relation to the others.
    """
    numbered = sorted((_number(root), root) for root in roots)
    room = _room(len(numbered), weights)
    hashes = {worker: _number(worker) for worker in weights if room[worker]}
    even = len(set(weights.values())) <= 1
    assigned: dict[str, str] = {}
    for number, root in numbered:
        best, best_score = "", -math.inf
        for worker, own in hashes.items():
            mixed = _mixed(number, own)
            score = mixed if even else math.log((mixed + 1) / (_MASK + 2)) / weights[worker]
            if score > best_score:
                best, best_score = worker, score
        assigned[root] = best
        room[best] -= 1
        if not room[best]:
            del hashes[best]
    return assigned


def _room(roots: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide the roots by weight; the rest goes to the largest remainders."""
    shares = {worker: share(roots, weights, worker) for worker in weights}
    room = {worker: math.floor(part) for worker, part in shares.items()}
    left = roots - sum(room.values())
    for worker in sorted(room, key=lambda name: (room[name] - shares[name], _number(name)))[:left]:
        room[worker] += 1
    return room


def preference(root: str, worker: str) -> int:
    """Return how much a root prefers a worker; roots with the highest values are claimed first."""
    return _mixed(_number(root), _number(worker))
