# SPDX-License-Identifier: Apache-2.0
"""KCSAN's reports, and which are of the series: Linux has races of its own, most of them meant, that it reports too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from forktail.kernel.series import read_series

_BEGIN = re.compile(r"^.*BUG: KCSAN: .*$", re.MULTILINE)
_END = "Reported by Kernel Concurrency Sanitizer"
_FRAME = re.compile(r"^\[[^]]*\] +(\w+)(?:\.\w+)*\+0x", re.MULTILINE)
_DEFINITION = re.compile(r"^\+(?:\w[\w \t*]*[ *])?(\w+)\((?!.*;$)", re.MULTILINE)


@cache
def functions_of_the_series() -> frozenset[str]:
    """The functions that the patches define, by name."""
    return frozenset(name for patch in read_series().patches for name in _DEFINITION.findall(patch.read_text()))


def races_of_linux(console: str) -> Iterator[str]:
    """The first line of each report none of whose stacks goes through a function of the series.

    One without a stack is not among them, for nobody knows whose it is.
    """
    for begin in _BEGIN.finditer(console):
        frames = set(_FRAME.findall(console, begin.end(), console.find(_END, begin.end())))
        if frames and not frames & functions_of_the_series():
            yield begin[0]
