# SPDX-License-Identifier: Apache-2.0
"""The client host's side of a run whose load comes from another host: it keeps the load for the server that asks.

It loads nobody but the host that asked, one run at a time, with forktail-load alone (docs/formats.md has the
conversation). When the connection ends, so does the load.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import forktail
from forktail.errors import EnvironmentLacks
from forktail.measure.child import start_child
from forktail.measure.clock import answer_pings
from forktail.measure.environment import cpu_model
from forktail.measure.load import NAME
from forktail.measure.native import find_native
from forktail.rundir import CLIENT_SCHEMA

PORT = 7401
CHUNK_BYTES = 1 << 20
_ENDS_WITHIN_S = 30.0
_LINE_BYTES = 1 << 16
_OPTION = re.compile(r"--(?!host\b|port\b|log\b)[a-z-]+(=[A-Za-z0-9.:_-]*)?")
"""What the asker may not choose is whom to load, and where a file is written."""


def keep_alive(connection: socket.socket) -> None:
    """Let a connection break within half a minute of the other host's end, and send each line at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000)


def serve(address: str, port: int, on_ready: Callable[[int], None], note: Callable[[str], None]) -> None:
    """Wait for servers to ask, for ever; `on_ready` is told the port, `note` what is done for whom.

    EnvironmentLacks where nobody can listen there, or forktail-load is missing.
    """
    find_native(NAME)
    try:
        listener = socket.create_server((address, port))
    except OSError as error:
        raise EnvironmentLacks(
            f"Nobody can listen on {address}:{port} ({error.strerror}): name an address of this host, and a free port."
        ) from error
    with listener:
        on_ready(listener.getsockname()[1])
        busy = threading.Lock()
        while True:
            connection, (asker, _) = listener.accept()
            threading.Thread(target=_converse, args=(connection, asker, busy, note), daemon=True).start()


def _converse(connection: socket.socket, asker: str, busy: threading.Lock, note: Callable[[str], None]) -> None:
    with connection, connection.makefile("rwb") as stream, suppress(OSError):
        keep_alive(connection)
        try:
            asked = json.loads(stream.readline(_LINE_BYTES))
            match asked["ask"]:
                case "about":
                    _tell(stream, about())
                case "clock":
                    answer_pings(stream)
                case "load":
                    arguments = _arguments(asked, asker)
                    if not busy.acquire(blocking=False):
                        _tell(stream, {"event": "refused", "why": "keeps another run's load"})
                        return
                    try:
                        note(f"loads {asker}:{asked['port']}")
                        note(f"loaded {asker}:{asked['port']}: {_load(stream, connection, arguments)}")
                    finally:
                        busy.release()
        except (ValueError, KeyError, TypeError) as error:
            _tell(stream, {"event": "refused", "why": f"does not understand what it is asked ({error})"})


def about() -> dict[str, Any]:
    """What a result tells of the host that sent its load."""
    name = os.uname()
    return {
        "schema": CLIENT_SCHEMA,
        "forktail": forktail.__version__,
        "host": name.nodename,
        "kernel": name.release,
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _arguments(asked: dict[str, Any], asker: str) -> list[str]:
    options = [str(option) for option in asked["options"]]
    wrong = [option for option in options if not _OPTION.fullmatch(option)]
    if wrong:
        raise ValueError(f"the option {wrong[0]}")
    return ["run", f"--host={asker}", f"--port={int(asked['port'])}", *options]


def _load(stream: BufferedRWPair, connection: socket.socket, arguments: list[str]) -> str:
    """Keep a load to its end, tell its lines and its log; returns how it ended."""
    with tempfile.TemporaryDirectory(prefix="forktail-client-") as directory:
        log = Path(directory) / "queries.bin"
        with start_child([find_native(NAME), *arguments, f"--log={log}"], stdin=subprocess.PIPE) as program:
            listening = threading.Thread(target=_pass_on, args=(stream, program), daemon=True)
            listening.start()
            try:
                assert program.stdout is not None
                assert program.stderr is not None
                for line in program.stdout:
                    stream.write(line)
                    stream.flush()
                words = program.stderr.read().decode(errors="replace").strip()
                code = program.wait(_ENDS_WITHIN_S)
            finally:
                program.kill()
        size = log.stat().st_size if log.exists() else 0
        _tell(stream, {"event": "exited", "code": code, "words": words, "log_bytes": size})
        if size:
            with log.open("rb") as file:
                stream.flush()
                connection.sendfile(file)
    return words or "it is over"


def _pass_on(stream: BufferedRWPair, program: subprocess.Popen[bytes]) -> None:
    """Pass on what the asker says; its end of file is the load's, which then drains and ends."""
    assert program.stdin is not None
    with suppress(OSError, ValueError), program.stdin:
        while line := stream.readline(_LINE_BYTES):
            program.stdin.write(line)
            program.stdin.flush()


def _tell(stream: BufferedRWPair, event: dict[str, Any]) -> None:
    stream.write(json.dumps(event).encode() + b"\n")
    stream.flush()
