"""Where Flower is not installed, the modules that need it are not looked into for examples."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("flwr") else ["src/ebbflow/flower/*"]
