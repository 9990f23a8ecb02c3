"""Migrate data into a new shape while it is read and written.

`streamkit.kinds.migration` declares a migration, `transform` computes what it makes of one item,
`in_place` and `pairs` write that conditional on what was read, `progress.scan` cuts a table
into leased segments, `running` takes a migration from phase to phase, and `commands` is what the
command line calls.

Before it runs, `discovery` finds its file and `planning` tries it on a sample; while it runs,
`reports` says how fast it is and `progress` how far; afterwards `verifying` reads every item.
"""
