# SPDX-License-Identifier: Apache-2.0
"""What loading raises."""


class InvalidLayoutError(ValueError):
    """There is no checkpoint at the path, or none that can be loaded so."""


__all__ = ["InvalidLayoutError"]
