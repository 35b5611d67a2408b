# SPDX-License-Identifier: Apache-2.0
"""Random keys of JAX and NumPy, as they are in folders of Orbax."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pathlib

# After the name of the folder that has a key: one that says what it is.
_ABOUT = "_metadata"


class KeyFolder(NamedTuple):
    """Where the handlers of random keys put one."""

    path: pathlib.Path
    of_jax: bool
    # Of JAX: it has an implementation. Of NumPy: it is a tuple.
    marked: bool


def key_folder(item: pathlib.Path) -> KeyFolder | None:
    """None: no handler of random keys wrote the item."""
    for child in sorted(item.iterdir()):
        key = child.with_name(child.name.removesuffix(_ABOUT))
        about = child / "metadata"
        if key == child or not key.is_dir() or not about.is_file():
            continue
        said = _read_json(about)
        for name, of_jax in (("typed", True), ("legacy", False)):
            if isinstance(said, dict) and name in said:
                return KeyFolder(key, of_jax, bool(said[name]))
    return None


def read_of_jax(ocp: Any, folder: KeyFolder) -> Any:
    """Where JAX puts it by default, as JaxRandomKeyRestore() gives it."""
    import jax

    args = ocp.args.ArrayRestore(restore_args=ocp.RestoreArgs(np.ndarray))
    data = ocp.ArrayCheckpointHandler().restore(folder.path, args=args)
    if folder.marked:
        return typed(data, None, str(folder.path))
    return jax.numpy.asarray(data)


def check_for_orbax(key: Any) -> None:
    """ValueError: JaxRandomKeySave does not take it, or gives another back: it
    has the implementation then that JAX has by default."""
    import jax

    default = jax.config.jax_default_prng_impl
    impl = str(jax.random.key_impl(key)) if is_typed(key) else default
    if impl != default:
        raise ValueError(
            f"is a key of {impl!r}, which Orbax, as an item, takes for one of "
            f"{default!r}: set jax_default_prng_impl to it"
        )
    if not is_typed(key):
        try:
            jax.random.wrap_key_data(key)  # Orbax looks at the numbers, too.
        except TypeError as error:
            raise ValueError(f"is no key to Orbax: {error}") from None


def implementations(folder: pathlib.Path) -> dict[str, str]:
    """Of the arrays of a tree that were typed keys, by the names that Orbax
    has for them. ValueError: its file is damaged."""
    found: dict[str, str] = {}
    for file in sorted((folder / "array_metadatas").glob("process_*")):
        said = _read_json(file)
        try:
            for entry in said["array_metadatas"]:
                about = entry["array_metadata"]
                impl = (about["ext_metadata"] or {}).get("random_key_impl")
                if impl:
                    found[about["param_name"]] = impl
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{file} is not what Orbax writes: it says which arrays are "
                "random keys"
            ) from None
    return found


def typed(data: Any, impl: str | None, name: str) -> Any:
    """A key of JAX of its numbers. `impl`: None is the one that JAX has by
    default. ValueError: it makes no key of these numbers."""
    import jax

    try:
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=impl)
    except (TypeError, ValueError) as error:
        default = "" if impl else (
            "; Orbax does not keep which one it was: set "
            "jax_default_prng_impl to it"
        )
        raise ValueError(
            f"{name}: {data.dtype}[{', '.join(map(str, data.shape))}] is no "
            f"random key of {impl or jax.config.jax_default_prng_impl!r} "
            f"here: {error}{default}"
        ) from None


def is_typed(value: Any) -> bool:
    """Whether it is a key of JAX that has an implementation."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return False
    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def numbers(key: Any) -> np.ndarray[Any, Any]:
    """What a typed key is made of."""
    import jax

    return np.asarray(jax.random.key_data(key))


def _read_json(file: pathlib.Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is not what Orbax writes: {error}") from None
