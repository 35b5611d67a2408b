# SPDX-License-Identifier: Apache-2.0
"""What a Checkpointer raises."""


class StepAlreadyExistsError(FileExistsError):
    """There is a step of that number."""


class StepNotFoundError(FileNotFoundError):
    """There is no step of that number."""


__all__ = ["StepAlreadyExistsError", "StepNotFoundError"]
