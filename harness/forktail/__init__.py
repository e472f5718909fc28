# SPDX-License-Identifier: Apache-2.0
"""forktail: what fork-based snapshots do to the tail latency of in-memory stores."""

__version__ = "0.1.0"
