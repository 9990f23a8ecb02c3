"""Items that move: a family is what one old item, or several, become, in both shapes.

`settlement` compares old, new and the pair record three ways, `plans` says what becomes of the
family, and `families` reads and writes it.
"""
