"""Assignment: which worker each shard belongs to. Pure; every worker computes the same.

Shards are assigned by their *seat*, which an only child inherits from its parent, so that a stream
that rolls moves nothing. Rendezvous hashing gives each seat an order of preference among the
workers; the first one with room gets it, and room is the worker's share by weight.

    the same members, other seats      what was assigned stays, but for a few at the borders
    a worker more or less              only claims move a shard that somebody reads, see `wanted`
"""

import hashlib
import math
from collections.abc import Iterable, Mapping

_MASK = (1 << 64) - 1


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _mixed(first: int, second: int) -> int:
    """Mix two hashes into one, with the steps of SplitMix64: it is done once a seat and worker."""
    mixed = ((first ^ second) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return mixed ^ (mixed >> 27)


def share(seats: int, weights: Mapping[str, int], worker: str) -> float:
    """Return a worker's part of so many seats, by weight."""
    return seats * weights[worker] / sum(weights.values())


def assign(seats: Iterable[str], weights: Mapping[str, int]) -> dict[str, str]:
    """Return the worker of each seat.

    Args:
        seats: each once, in any order.
        weights: the workers, with how much each takes in relation to the others.
    """
    numbered = sorted((_number(seat), seat) for seat in set(seats))
    room = _room(len(numbered), weights)
    hashes = {worker: _number(worker) for worker in sorted(weights) if room[worker]}
    even = len(set(weights.values())) <= 1
    assigned: dict[str, str] = {}
    for number, seat in numbered:
        best, best_score = "", -math.inf
        for worker, own in hashes.items():
            mixed = _mixed(number, own)
            score = mixed if even else math.log((mixed + 1) / (_MASK + 2)) / weights[worker]
            if score > best_score:
                best, best_score = worker, score
        assigned[seat] = best
        room[best] -= 1
        if not room[best]:
            del hashes[best]
    return assigned


def _room(seats: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide the seats by weight; those left over go to the largest remainders."""
    shares = {worker: share(seats, weights, worker) for worker in weights}
    room = {worker: math.floor(part) for worker, part in shares.items()}
    left = seats - sum(room.values())
    for worker in sorted(room, key=lambda name: (room[name] - shares[name], _number(name)))[:left]:
        room[worker] += 1
    return room


def preference(seat: str, worker: str) -> int:
    """Return how much a seat prefers a worker; the highest are claimed first."""
    return _mixed(_number(seat), _number(worker))
