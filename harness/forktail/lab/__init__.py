# SPDX-License-Identifier: Apache-2.0
"""The lab: QEMU guests on this machine, one a kernel, each a host over SSH (docs/lab.md)."""
