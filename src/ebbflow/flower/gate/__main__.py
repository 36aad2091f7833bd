"""Runs the gate: python -m ebbflow.flower.gate."""

from __future__ import annotations

import sys

from ebbflow.flower.gate.command import main

if __name__ == "__main__":
    sys.exit(main())
