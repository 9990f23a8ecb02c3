"""Migrate data into a new shape while it is read and written.

`streamkit.kinds.migration` declares a migration. Its state is in the table (`book`). A process
(`run`) follows changes and scans, computes what an item becomes (`items`, `families`), and writes
at a pace (`sending`), conditional on what was read. `plan` tries it on a sample before, `verify`
reads every item afterwards, and `operate` is what the command line calls. README.md has the phases.
"""
