"""A profile by samples: every millisecond of CPU time, note what runs.

It slows nothing down, so that shares are true; a profiler that is called for each function makes
small functions look large. Time in the search for cyclic garbage is measured beside it.
"""

import gc
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_SECONDS = 0.001
ROOT = Path(__file__).parents[2]


class Sampler:
    """Takes samples between `start` and `stop`, in the main thread."""

    def __init__(self) -> None:
        self._own: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self._samples = 0
        self._on = False
        self._seconds = self._garbage = self._began = 0.0

    def start(self) -> None:
        """Begin, or go on."""
        if not self._on:
            self._on = True
            gc.callbacks.append(self._collected)
            signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)
            self._seconds -= time.process_time()

    def stop(self) -> None:
        """Take no more samples."""
        if self._on:
            self._on = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            gc.callbacks.remove(self._collected)
            self._seconds += time.process_time()

    def _collected(self, phase: str, _info: object) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self._garbage += time.process_time() - self._began

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        self._samples += 1
        if frame is not None:
            self._own[_name(frame)] += 1
        names = set()
        while frame is not None:
            names.add(_name(frame))
            frame = frame.f_back
        self._whole.update(names)

    def report(self, lines: int) -> str:
        """Return the functions with most time of their own, and those with most time in all."""
        found = max(self._samples, 1)
        garbage = self._garbage / max(self._seconds, 1e-9)
        spent = f"{self._seconds:.2f} s of CPU, {self._samples} samples"
        parts = [f"{spent}; the search for garbage took {garbage:.0%}"]
        for title, counts in (("own time", self._own), ("with all that it calls", self._whole)):
            parts.append(f"\n{title}")
            for name, count in counts.copy().most_common(lines):  # samples may go on
                parts.append(f"{count / found:7.1%}  {name}")
        return "\n".join(parts)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    path = Path(code.co_filename)
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(*path.parts[-2:])
    return f"{where}:{code.co_firstlineno} {code.co_qualname}"
