"""Hooks of mkdocs.yml, which make of docs/ what `make docs` builds.

Each module is a hook of its own: mkdocs loads it by its path and calls its ``on_...`` functions.
"""
