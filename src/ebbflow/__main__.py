"""`python -m ebbflow`: the command line."""

from ebbflow.cli import main

main()
