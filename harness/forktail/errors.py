# SPDX-License-Identifier: Apache-2.0
"""The ways a command can end badly, each with its documented exit code."""

from __future__ import annotations


class ForktailError(Exception):
    """Base of all errors told to the user: one clear sentence that names the thing and the mend."""

    exit_code = 1


class GateFailed(ForktailError):
    """The work was done, but its result failed a check (exit code 1)."""

    exit_code = 1


class BadInput(ForktailError):
    """What the user gave cannot be used: an option, a workload, a run directory (exit code 2)."""

    exit_code = 2


class EnvironmentLacks(ForktailError):
    """The host lacks something that the command needs: a program, a right, memory, disk (exit code 3)."""

    exit_code = 3


class RunFailed(ForktailError):
    """A run began and could not be brought to its end: the server died, BGSAVE failed (exit code 1)."""

    exit_code = 1
