"""One process that works on a migration: it follows changes and reads the table, phase by phase.

`running` is the process, `passing` an item's way in a scan, `capture` that in the stream; both call
`work`, which chooses between `in_place`, `pairs`, and `families`.
"""
