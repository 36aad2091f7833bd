"""Data of a user's own: tables, folders of pictures, arrays, files by user, objects in Python.

Each kind of data is read by a module of its own into a `Split` of arrays; `assembly` checks these
and makes the data set, in the same way for all of them. What is done on the way is told in its
notes.
"""
