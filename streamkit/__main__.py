"""`python -m streamkit`: the command line."""

from streamkit.cli import main

main()
