"""Migrations: data brought into a new shape while it is read and written.

`definition` says what a migration is, `transform` what it makes of one item, `in_place` and `pairs`
write that conditional on what was read, `segments` cuts a table into leased parts, `running` takes
a migration from phase to phase, and `commands` is what the command line calls.
"""
