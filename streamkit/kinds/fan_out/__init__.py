"""Fan-outs: the audience of a change, and how a large one is served page by page."""
