"""Garbage: how often Python's collector of cycles runs in a process that allocates in pages."""

import gc


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
