# SPDX-License-Identifier: Apache-2.0
"""What times of an emulated machine are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

COUNTED = "times are instructions"
STRETCHED = "ratios hold, absolute times do not"


def worth_of_times(labs: Iterable[Mapping[str, Any]]) -> str | None:
    """It in a few words, of runs by `lab` in each one's `environment.json`; None where no run was emulated."""
    counted = [bool(lab.get("icount")) for lab in labs if lab.get("accelerator") == "tcg"]
    if not counted:
        return None
    return COUNTED if all(counted) else STRETCHED
