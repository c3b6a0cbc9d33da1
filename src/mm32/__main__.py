"""`python -m mm32`: the command line."""

from mm32.cli import main

main()
