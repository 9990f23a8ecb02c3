"""Migrations: data brought into a new shape while it is read and written.

`definition` says what a migration is, `transform` what it makes of one item, `in_place` and `pairs`
write that conditional on what was read, `segments` cuts a table into leased parts, `running` takes
a migration from phase to phase, and `commands` is what the command line calls.

Before it runs, `discovery` finds its file and `planning` tries it on a sample; while it runs,
`reports` says how fast it is and `progress` how far; afterwards `verifying` looks at every item.
"""
