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
def uncollected() -> Iterator[None]:
    """Import modules without collections of garbage, and keep what is imported out of later ones.

    Imports leave next to no garbage, and collections look at all that was imported before: together
    they took an eighth of a cold start's imports. It is for one module that is imported once: of
    two threads that come here at the same time, one could leave the collector off.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
