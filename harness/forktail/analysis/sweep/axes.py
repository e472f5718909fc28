# SPDX-License-Identifier: Apache-2.0
"""What the figures of a sweep share: colours, axes of time, legends, the line below the title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from forktail.analysis.quantity import time_text
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.label import flavour, fork_label

# Okabe and Ito's palette; a kernel measured again has its own colour, paler, and so has one that copies with fewer
# threads.
KERNEL_COLOURS = {"default": "#D55E00", "odf": "#0072B2", "async-fork": "#009E73", "local": "#D55E00"}
_UNKNOWN = "#666666"
CROWD = 4
"""More forks than these want the room beside the title, and more points than these that beside each other's labels."""
_LONG = 80
"""Characters of a legend that are too many for the room beside the title."""
HATCHES = ("", "///", "...", "xxx")
"""Of bars that differ in something else than the kernel, which has the colour."""
_PALEST = 0.6
"""The share of white in the palest colour."""


def subtitle(sweep: Sweep) -> str:
    """What was measured, and whether its times are worth anything."""
    document = sweep.document
    mark = f"  ·  EMULATED: {sweep.emulation}" if sweep.emulated else ""
    if sweep.closed_loops:
        mark += f"  ·  CLOSED LOOP: {', '.join(sweep.closed_loops)}"
    made = sorted({cell["runs"] for cell in document["cells"]})
    if made == [1]:
        return f"{document['name']}  ·  one run each{mark}"
    runs = " to ".join(str(number) for number in (made if len(made) < 2 else [made[0], made[-1]]))
    valid = "" if all(cell["valid_runs"] == cell["runs"] for cell in document["cells"]) else "the valid of "
    return f"{document['name']}  ·  mean of {valid}{runs} runs, lines from minimum to maximum{mark}"


def colours(cells: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A colour for each fork: a kernel's own for its most threads, paler for fewer, palest where it comes again."""
    found = {}
    for cell in cells:
        rivals = {other["copy_threads"] for other in cells if other["arm"] == cell["arm"]} - {None}
        more = len([threads for threads in rivals if threads > cell["copy_threads"]])
        white = _PALEST if cell["arm"] != cell["kernel"] else _PALEST * more / len(rivals) if rivals else 0.0
        found[fork_label(cell)] = paler(KERNEL_COLOURS.get(flavour(cell), _UNKNOWN), white)
    return found


def paler(colour: str, white: float) -> str:
    """The colour with a share of white, 0 to 1."""
    red, green, blue = to_rgb(colour)
    return to_hex((red + (1 - red) * white, green + (1 - green) * white, blue + (1 - blue) * white))


def legend(figure: Figure, entries: dict[str, Any]) -> None:
    """One legend for all panels: handles by label."""
    handle = 6  # A handle and the gap beside it are as wide as so many characters.
    crowded = len(entries) > CROWD or sum(len(label) + handle for label in entries) > _LONG
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center" if crowded else "outside upper right",
        ncols=len(entries),
    )


def log_times(axes: Axes) -> None:
    """A logarithmic axis of microseconds, told in the unit that suits."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value * 1000)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    # Whole decades, so that an axis always bears two labels and small differences look small.
    axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high * 1.3)))
