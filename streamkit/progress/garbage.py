"""Garbage: how often Python's collector of cycles runs in a process that allocates in pages."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_seldom(*, first: bool = True) -> None:
    """Let the garbage collector look at what a process allocates in pages, and rarely at the rest.

    With Python's own thresholds the collector takes a third of the CPU time: a page of a thousand
    changes begins dozens of collections, and each of the largest ones goes through every imported
    module. Measured, memory stays the same, because changes and items leave no cycles behind.

    Args:
        first: collect once now, which takes a tenth of a second; without it, what is garbage now
            stays.
    """
    if first:
        gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@contextmanager
def importing() -> Iterator[None]:
    """Import modules without looking for garbage in older objects; exclude them from then on.

    Imports leave garbage, 0.8 MB of the SDK's, but it is young: the collections that look at old
    objects find none, and took a tenth of the CPU time of a cold start's imports.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(thresholds[0], 1_000, 1_000)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)
