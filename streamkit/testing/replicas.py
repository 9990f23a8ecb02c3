"""Replicas: eventually consistent reads that answer from a moment ago, as those of AWS may.

The engine has one copy of everything. So an older answer is one that the same request got before.

In: a process's reads. Out: for a share of those that are eventually consistent, an older answer.
"""

import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from streamkit.local.transport import Call, Response

_READS = frozenset({"GetItem", "BatchGetItem", "Query"})
_OLD_SECONDS = 1.0
"""How old an answer may be: copies are usually the same within a second, says the documentation."""
_SHARE = 0.1
"""How many answers may be old; on AWS there are fewer."""
_FRESH = re.compile(rb'"ConsistentRead": ?true')


@dataclass
class Replicas:
    """Chooses which reads get an older answer; `time` is the world's, in seconds."""

    rng: random.Random
    time: Callable[[], float]
    _answers: dict[bytes, deque[tuple[float, Response]]] = field(default_factory=dict)
    _given: deque[tuple[float, bytes]] = field(default_factory=deque)

    def answer(self, call: Call, apply: Callable[[], Response]) -> Response:
        """Answer a call, or repeat what the same request was answered before."""
        response = apply()
        if call.operation not in _READS or _FRESH.search(call.payload) or response.status != 200:
            return response
        now = self.time()
        self._forget(now - _OLD_SECONDS)
        known = self._answers.setdefault(call.payload, deque())
        known.append((now, response))
        self._given.append((now, call.payload))
        return self.rng.choice(known)[1] if self.rng.random() < _SHARE else response

    def _forget(self, before: float) -> None:
        """Drop the answers that are too old to be given again."""
        given = self._given
        while given and given[0][0] < before:
            _, request = given.popleft()
            known = self._answers[request]
            known.popleft()
            if not known:
                del self._answers[request]
