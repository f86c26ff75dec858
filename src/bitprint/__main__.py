"""`python -m bitprint`."""

from bitprint.cli import main

main()
