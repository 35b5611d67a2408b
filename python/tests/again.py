# SPDX-License-Identifier: Apache-2.0
"""Rows that tests/run leaves to --all: a test that takes many seconds has one
row without it."""

import pytest


def again(*values):
    return pytest.param(*values, marks=pytest.mark.again)
