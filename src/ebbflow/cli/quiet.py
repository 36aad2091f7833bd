"""What a run with --quiet still says: warnings."""

from __future__ import annotations

from dataclasses import replace

from ebbflow.report.progress import ProgressDisplay
from ebbflow.simulation.callbacks import SessionStarted


class WarningDisplay(ProgressDisplay):
    """Shows warnings, and neither progress nor notes."""

    def session_started(self, event: SessionStarted) -> None:
        """Show the session's warnings."""
        warnings = [line for line in event.recorded if line["event"] == "warning"]
        super().session_started(replace(event, recorded=warnings))
