"""Shapes."""

Shape = tuple[int, ...]

__all__ = ["Shape"]
