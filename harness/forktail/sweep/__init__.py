# SPDX-License-Identifier: Apache-2.0
"""A sweep: the same workload over kernels and other values, repeated, interleaved and resumable."""
