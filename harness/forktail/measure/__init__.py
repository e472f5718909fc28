# SPDX-License-Identifier: Apache-2.0
"""The measuring side. It runs on the measured host, so it imports no pandas and nothing else that is heavy."""
