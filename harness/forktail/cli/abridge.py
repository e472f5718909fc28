# SPDX-License-Identifier: Apache-2.0
"""`forktail abridge`: a sweep without its raw files, to be committed or kept as a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forktail.cli.console import told_clearly
from forktail.sweep.abridge import abridge as write_abridged


def abridge(
    sweep: Annotated[Path, typer.Argument(help="A directory that `forktail sweep` finished; it stays as it is.")],
    out: Annotated[Path, typer.Argument(help="Where the small one goes; an abridged sweep there is replaced.")],
) -> None:
    """Keep of a sweep what reports, comparisons and notebooks read, without raw logs and local paths."""
    with told_clearly():
        write_abridged(sweep, out)
        files = [path for path in out.rglob("*") if path.is_file()]
        print(f"{out}: {len(files)} files, {sum(path.stat().st_size for path in files) / 1000:,.0f} kB")
