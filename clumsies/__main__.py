"""`python -m clumsies`."""

from clumsies.cli.main import main

main()
