# SPDX-License-Identifier: Apache-2.0
"""What is asked of single leaves; see type_handlers."""

from ckptree.orbax.type_handlers import (
    ArrayHandler,
    ArrayRestoreArgs,
    NumpyHandler,
    RestoreArgs,
    SaveArgs,
    ScalarHandler,
    StringHandler,
    TypeHandlerRegistry,
    create_type_handler_registry,
    register_type_handler,
)

__all__ = [
    "ArrayHandler",
    "ArrayRestoreArgs",
    "NumpyHandler",
    "RestoreArgs",
    "SaveArgs",
    "ScalarHandler",
    "StringHandler",
    "TypeHandlerRegistry",
    "create_type_handler_registry",
    "register_type_handler",
]
