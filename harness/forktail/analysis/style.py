# SPDX-License-Identifier: Apache-2.0
"""One look for all figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

P = ParamSpec("P")

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the project's style, whatever the style around."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawn


def titled(title: str, subtitle: str, height: float) -> Figure:
    """An empty figure ten inches wide, with its title and what was measured."""
    figure = Figure(figsize=(10, height), dpi=130, layout="constrained")
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.text(0.01, 1 - 0.47 / height, subtitle, fontsize=9, color="#555555")
    return figure


def say(axes: Axes, text: str) -> None:
    """A sentence in place of a picture."""
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=11, transform=axes.transAxes)
    axes.set_axis_off()
