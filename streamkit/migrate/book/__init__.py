"""What the table knows of a migration: state, limits, errors, tallies, and its order.

Every other package of `migrate` reads this one; nothing here reads or writes an item of the app.
"""
