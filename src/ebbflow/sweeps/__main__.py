"""`python -m ebbflow.sweeps`: a process that works for another one, which tells it what to do.

The first line of standard input says what. The other process holds the other end of that pipe as
long as it lives; when it is gone, this one ends as well.
"""

from ebbflow.sweeps.servant import main

main()
