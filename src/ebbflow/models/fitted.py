"""Brings the output of a user's module to the form that its task has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Fitted(nn.Module):
    """A module whose single output is brought to the form that its task has.

    A logit z for one of two classes becomes the pair (0, z), which has the same loss; a number per
    sample becomes a row of one.
    """

    def __init__(self, module: nn.Module, task: str) -> None:
        super().__init__()
        self.module, self.task = module, task

    def forward(self, *args: Tensor, **named: Tensor) -> Any:
        """Return the module's outputs, with its features if it has some."""
        result = self.module(*args, **named)
        logits, *features = result if isinstance(result, tuple) else (result,)
        if not isinstance(logits, Tensor):
            return result
        if logits.dim() == 1:
            logits = logits.unsqueeze(-1)
        if self.task == "binary" and logits.shape[-1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], -1)
        return (logits, *features) if features else logits
