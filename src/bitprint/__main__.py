"""Run the command line with `python -m bitprint`."""

from bitprint.cli import main

main()
