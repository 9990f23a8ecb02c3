"""Fan-outs: the audience of a change, and how a large one is served page by page."""

INLINE = 50
"""Recipients at most that are served in the change's own commit."""
