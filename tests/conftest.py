# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says something of the host, and nothing of the code.
settings.register_profile("forktail", deadline=None)
settings.load_profile("forktail")
