# SPDX-License-Identifier: Apache-2.0
"""`forktail client`: keep the load for servers on other hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from forktail.cli.console import notes, told_clearly
from forktail.measure.client import PORT, serve


def client(
    address: Annotated[str, typer.Option("--bind", metavar="ADDRESS", help="Where to listen; no wider than needed.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = PORT,
) -> None:
    """Send the load of runs whose server is on another host; load.host names this one. Ends by Ctrl-C."""

    def note(text: str) -> None:
        notes.print(f"forktail client {text}", highlight=False, soft_wrap=True)

    with told_clearly():
        serve(address, port, lambda chosen: note(f"waits on {address}:{chosen}"), note)
