"""The page of a run while it goes on.

`tail` reads what a run has recorded since the last look, `watching` says what has changed on its
page, and `server` shows the page to a browser on this machine.
"""
