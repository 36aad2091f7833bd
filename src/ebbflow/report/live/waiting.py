"""The page that is shown while there is no run to show, or none that can be read."""

from __future__ import annotations

import base64
import hashlib
import html

from ebbflow.core.names import printable, shortened
from ebbflow.report.live.server import Html

EVERY = 2
"""Seconds after which a browser asks again."""
STYLE = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:20vh auto;padding:0 1rem}"
    "@media(prefers-color-scheme:dark){body{background:#16181d;color:#e6e6e6}}"
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def waiting_page(sentence: str) -> Html:
    """Return a page that says why there is nothing to see, and looks again soon."""
    told = html.escape(shortened(printable(sentence)))
    return Html(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="{EVERY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ebbflow</title><style>{STYLE}</style></head>\n"
        f'<body><p role="status">{told}</p>\n'
        "<p>This page goes on by itself.</p></body></html>\n",
        POLICY,
    )
