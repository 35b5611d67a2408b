# SPDX-License-Identifier: Apache-2.0
"""Shapes."""

Shape = tuple[int, ...]

__all__ = ["Shape"]
