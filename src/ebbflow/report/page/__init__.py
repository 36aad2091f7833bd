"""A run, or many, as one page of HTML that needs nothing else: no network, no other file.

`content` gathers what the page tells, as a dictionary that JSON can hold; the modules beside it
have one part each. `rendering` puts it into the page, and `writing` puts the page into a file.
Charts are drawn in the browser, by the scripts in ``assets``.
"""
