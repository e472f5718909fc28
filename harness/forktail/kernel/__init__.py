# SPDX-License-Identifier: Apache-2.0
"""The kernels under comparison: one base source, one patch series, one configuration a flavour, built and kept."""
