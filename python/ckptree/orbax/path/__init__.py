"""Names of steps."""

from ckptree.orbax.path import step

__all__ = ["step"]
