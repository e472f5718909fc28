# SPDX-License-Identifier: Apache-2.0
"""A load from another host, which looks to the harness as if forktail-load ran here; a program of its own.

    python -m forktail.measure.remote_load --client=ADDRESS:PORT --port=PORT --log=FILE --clock=FILE OPTIONS

`forktail client` on that host runs forktail-load with the options. Lines, exit code and log are passed on; of all
times only the start is translated, roughly, for the harness to keep time by. The log stays in the clock of its host,
and the pings between both clocks go to --clock, for the analysis.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import forktail
from forktail.errors import BadInput, EnvironmentLacks, ForktailError, RunFailed
from forktail.measure.client import CHUNK_BYTES, PORT, keep_alive
from forktail.measure.clock import ClockLog, translation
from forktail.rundir import CLIENT_SCHEMA

_CONNECTS_WITHIN_S = 5.0
_ANSWERS_WITHIN_S = 10.0


def parse_host(text: str) -> tuple[str, int]:
    """Address and port of "10.0.0.2" or "10.0.0.2:7401"; BadInput where there is no such port."""
    address, _, port = text.partition(":")
    if port and not 0 < int(port) < 65536:
        raise BadInput(f"load.host {text} has no port between 1 and 65535: leave it out, or mend it.")
    return address, int(port or PORT)


def reach(host: str) -> socket.socket:
    """A connection to `forktail client` on that host; EnvironmentLacks where it does not answer."""
    try:
        connection = socket.create_connection(parse_host(host), _CONNECTS_WITHIN_S)
    except OSError as error:
        raise EnvironmentLacks(
            f"load.host {host} does not answer ({error.strerror or error}): start `forktail client` there."
        ) from error
    keep_alive(connection)
    connection.settimeout(None)
    return connection


def ask_about(host: str) -> dict[str, Any]:
    """What the client host tells of itself, and as `seen_from` this host's address on the way to it.

    EnvironmentLacks where it does not answer, BadInput where another forktail does.
    """
    with reach(host) as connection, connection.makefile("rwb") as stream:
        connection.settimeout(_ANSWERS_WITHIN_S)
        try:
            _say(stream, {"ask": "about"})
            told = dict(json.loads(stream.readline()))
        except (OSError, ValueError, TypeError) as error:
            raise EnvironmentLacks(
                f"load.host {host} is something else than `forktail client`, by what it answers: name where that waits."
            ) from error
        if told.get("schema") != CLIENT_SCHEMA or told.get("forktail") != forktail.__version__:
            raise BadInput(
                f"load.host {host} runs forktail {told.get('forktail')}, and this host {forktail.__version__}: "
                "install the same on both."
            )
        return told | {"seen_from": connection.getsockname()[0]}


def _say(stream: BufferedRWPair, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _read(stream: BufferedRWPair, host: str) -> dict[str, Any]:
    line = stream.readline()
    if not line:
        raise RunFailed(f"The client host {host} has gone away in the middle of the run: see what it says there.")
    event: dict[str, Any] = json.loads(line)
    if event.get("event") == "refused":
        raise EnvironmentLacks(f"The client host {host} {event['why']}: wait for its end, or name another load.host.")
    return event


def _keep_log(stream: BufferedRWPair, size: int, path: Path, host: str) -> None:
    """Receive the query log; it gets its name when it is whole."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        while size:
            data = stream.read(min(size, CHUNK_BYTES))
            if not data:
                raise RunFailed(f"The client host {host} has gone away before its query log was here.")
            file.write(data)
            size -= len(data)
    temporary.replace(path)


def _listen(connection: socket.socket) -> None:
    """Pass on what the harness says; that it says no more ends the load."""
    for line in sys.stdin.buffer:
        with suppress(OSError):
            connection.sendall(line)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def load_from(host: str, port: int, log: Path, clock: Path, options: list[str]) -> int:
    """Have a load sent from another host; returns the exit code of forktail-load, whose words are passed on."""
    told = ask_about(host)
    with reach(host) as pinging, reach(host) as connection, connection.makefile("rwb") as stream:
        pinging.sendall(b'{"ask": "clock"}\n')
        clocks = ClockLog(pinging)
        clocks.begin()
        here = translation(clocks.quickest())
        _say(stream, {"ask": "load", "port": port, "options": options})
        threading.Thread(target=_listen, args=(connection,), daemon=True).start()
        end = None
        while (event := _read(stream, host))["event"] != "exited":
            if event["event"] == "end":
                end = event  # Whoever reads it may rely on the log.
            else:
                _print(_in_this_clock(event, here))
        if event["log_bytes"]:
            _keep_log(stream, event["log_bytes"], log, host)
        clocks.end()
    clock.write_text(json.dumps({**told, "address": host, "pings": clocks.pings}) + "\n", encoding="utf-8")
    if end:
        _print(end)
    if event["words"]:
        print(event["words"], file=sys.stderr)
    return int(event["code"])


def _in_this_clock(event: dict[str, Any], here: Callable[[int], int]) -> dict[str, Any]:
    return event | {name: here(event[name]) for name in ("start_ns", "t_ns") if name in event}


def _print(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


def main(arguments: list[str]) -> int:
    """The program; its exit codes are forktail-load's."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    own = {name: given.pop(f"--{name}") for name in ("client", "port", "log", "clock")}
    options = [f"{name}={value}" if value else name for name, value in given.items()]
    try:
        return load_from(own["client"], int(own["port"]), Path(own["log"]), Path(own["clock"]), options)
    except ForktailError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"The client host {own['client']} has gone away in the middle of the run ({error}).", file=sys.stderr)
        return RunFailed.exit_code


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # The thread that reads what the harness says may be waiting for ever.
    os._exit(code)
