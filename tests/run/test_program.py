# SPDX-License-Identifier: Apache-2.0
"""Programs beside the server, and what is said of how they ended."""

from __future__ import annotations

import pytest

from forktail.errors import RunFailed
from forktail.measure.program import Program


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Launching threads now ...' >&2; kill -KILL $$",
            "noisy was ended by SIGKILL after: Launching",
        ),
        ("kill -TERM $$", "noisy was ended by SIGTERM."),
        ("echo 'noisy: no such host: name another' >&2; exit 4", "noisy: no such host: name another"),
        ("exit 3", "noisy failed, with exit code 3 and without a word."),
    ],
)
def test_a_program_that_fails_is_named(script: str, said: str) -> None:
    program = Program("noisy", ["sh", "-c", script], lambda _line: None)
    with pytest.raises(RunFailed) as raised:
        program.wait(5)
    program.end()
    assert str(raised.value).startswith(said)
