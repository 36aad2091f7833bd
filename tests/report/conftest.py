"""One browser for all tests of this folder: two of them cannot be driven at the same time."""

from tests.browser import browser, page_factory  # noqa: F401 - fixtures
