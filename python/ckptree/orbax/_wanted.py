# SPDX-License-Identifier: Apache-2.0
"""What a restore asks of a leaf, and what becomes of its value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from ckptree.arrays import casting, dtypes, values
from ckptree.adapters.protocol import Request
from ckptree.orbax.metadata import ArrayMetadata, ScalarMetadata, StringMetadata
from ckptree.orbax.metadata.sharding import wanted_here
from ckptree.orbax.type_handlers import ArrayRestoreArgs, RestoreArgs

if TYPE_CHECKING:
    from ckptree import _engine

# Descriptions, which are containers where rules do not say otherwise.
ABSTRACT: tuple[type, ...] = (ArrayMetadata, ScalarMetadata, StringMetadata)

_PYTHON: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "bytes": bytes,
}
# By the types: those of NumPy have names of Python's.
_NAMES: dict[Any, str] = {made: name for name, made in _PYTHON.items()}


class AsSaved(NamedTuple):
    """Where a leaf lay. Its devices need not be here, where another sharding
    is asked for."""

    plain: Any
    name: str

    def sharding(self) -> Any:
        """ValueError: its devices are not here."""
        from ckptree.orbax._sharding import from_plain

        try:
            return from_plain(self.plain)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


class Wanted(NamedTuple):
    """What a leaf is to be restored as."""

    # "saved", "numpy", "scalar" (of NumPy), "jax", a type of Python, or "same":
    # a number of Python or a scalar of NumPy where that was saved.
    kind: str
    dtype: str = ""  # Of the elements; empty: as saved.
    shape: tuple[int, ...] | None = None  # None: as saved.
    sharding: Any = None  # Or AsSaved; None: the default device.
    convert: bool = False  # Elements that are others are converted.
    fit: bool = False  # Axes that are others are cut, or filled with zeros.
    prng: bool = False  # A random key of JAX.
    through: str = ""  # The element type that it gets before all that.

    def problem(self, info: _engine.LeafInfo) -> tuple[str, str] | None:
        """What the leaf has otherwise: the problem, and what was expected."""
        if self.kind == "saved":
            return None
        kind = values.kind_of(info)
        is_key = info.tag.startswith("prng:")
        if self.kind in _PYTHON:
            fits = kind == self.kind or (
                self.kind not in ("str", "bytes")
                and (kind in ("bool", "int", "float", "complex"))
                or (kind == "array" and info.shape == () and not is_key)
            )
            return None if fits else ("kind", self.kind)
        if kind in ("bool", "int", "float", "complex"):
            # A number is an array of no dimensions: no axis can be fitted.
            if self.shape in (None, ()):
                return None
            return "kind", str(self)
        if kind != "array" or (self.prng and not is_key):
            return "kind", str(self)
        if is_key and not self.prng and self.dtype not in ("", "uint32"):
            return "kind", str(self)
        shape = info.shape
        if self.prng and self.shape is not None:
            shape = shape[:-1]  # The last axis has the numbers of a key.
        if self.shape is not None and shape != self.shape:
            if not self.fit or len(shape) != len(self.shape):
                return "shape", str(self)
        return None  # Elements are converted, where that loses nothing.

    def __str__(self) -> str:
        if self.kind in _PYTHON:
            return self.kind
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{'key' if self.prng else self.dtype or 'any'}[{dims}]"


def placed(want: Wanted, fallback: Any) -> Wanted:
    """With a sharding of JAX. ValueError: see AsSaved; but then `fallback`."""
    if not isinstance(want.sharding, AsSaved):
        return want
    try:
        return want._replace(sharding=want.sharding.sharding())
    except ValueError:
        if fallback is None:
            raise
        return want._replace(sharding=fallback)


def of_args(args: RestoreArgs, saved: Wanted, kind_saved: str = "") -> Wanted:
    """What RestoreArgs ask for. `saved`: the leaf as it was, of `kind_saved`
    where that is known."""
    dtype = "" if args.dtype is None else np.dtype(args.dtype).name
    jax = sys.modules.get("jax")
    # One of another type asks for what RestoreArgs would.
    if isinstance(args, ArrayRestoreArgs) and args.restore_type in (
        None,
        getattr(jax, "Array", None),
    ):
        sharding = args.sharding
        if sharding is None and args.mesh is not None:
            from jax.sharding import NamedSharding, PartitionSpec

            sharding = NamedSharding(
                args.mesh, args.mesh_axes or PartitionSpec()
            )
        if sharding is not None:
            sharding = _of_jax(sharding)
        else:
            sharding = saved.sharding
        shape = None if args.global_shape is None else tuple(args.global_shape)
        return Wanted(
            "jax",
            dtype,
            shape,
            sharding,
            convert=True,
            fit=not args.strict,
            prng=saved.prng,
        )
    kind = args.restore_type
    if kind is None:
        # Of a whole tree, in which texts stay texts.
        if not dtype or kind_saved in ("str", "bytes"):
            return saved
        of = "jax" if saved.kind == "jax" else "same"
        return Wanted(of, dtype, None, saved.sharding, convert=True)
    if kind is np.ndarray:
        return Wanted("numpy", dtype, convert=True)
    if kind in _NAMES:
        return Wanted(_NAMES[kind], convert=True, through=dtype)
    if isinstance(kind, type) and issubclass(kind, (np.number, np.bool_)):
        scalar = np.dtype(kind).name
        return Wanted("scalar", scalar, (), convert=True, through=dtype)
    if jax is not None and kind is jax.Array:
        return Wanted("jax", dtype, None, saved.sharding, convert=True)
    raise ValueError(
        f"restore_type {kind!r}: int, float, bool, str, bytes, a scalar of "
        "NumPy as numpy.float32, numpy.ndarray or jax.Array"
    )


def of_leaf(leaf: Any, saved: Wanted) -> Wanted:
    """What a leaf of a template asks for: what describes an array, without a
    sharding, leaves it where it lay. ValueError: it asks for nothing that can
    be."""
    if isinstance(leaf, np.ndarray):
        # np.array([]) says that it is of NumPy, and nothing of the shape.
        shape = None if leaf.shape == (0,) else leaf.shape
        return Wanted("numpy", dtypes.NAMES[leaf.dtype], shape)
    if isinstance(leaf, type) and leaf in _NAMES:
        return Wanted(_NAMES[leaf])
    if type(leaf) in _NAMES:
        return Wanted(_NAMES[type(leaf)])
    if isinstance(leaf, np.generic):
        return Wanted("scalar", dtypes.NAMES[leaf.dtype], ())
    if isinstance(leaf, StringMetadata):
        return Wanted("str")
    if isinstance(leaf, ScalarMetadata):
        kind = "" if leaf.dtype is None else np.dtype(leaf.dtype).kind
        return Wanted(
            {"b": "bool", "i": "int", "f": "float"}.get(kind, "saved")
        )
    if isinstance(leaf, ArrayMetadata):
        dtype = "" if leaf.dtype is None else np.dtype(leaf.dtype).name
        sharding = wanted_here(leaf.sharding)
        if sharding is not None:
            return Wanted(
                "jax", dtype, tuple(leaf.shape), _of_jax(sharding)
            )
        kind = "jax" if saved.kind == "jax" else "numpy"
        return Wanted(kind, dtype, tuple(leaf.shape), saved.sharding)
    if "jax" in sys.modules:
        from ckptree.adapters import jax

        expected = jax.describe(leaf)
        if expected is not None:
            sharding = expected.place
            if sharding is None and expected.abstract:
                sharding = saved.sharding
            on_device = not expected.abstract or sharding is not None
            return Wanted(
                "jax"
                if on_device or expected.tag or saved.kind == "jax"
                else "numpy",
                "" if expected.tag else expected.dtype,
                expected.shape,
                sharding,
                prng=bool(expected.tag),
            )
    raise ValueError(
        f"Unsupported type: {type(leaf)} in the template: arrays, "
        "jax.ShapeDtypeStruct, numbers, str, metadata or PLACEHOLDER"
    )


def is_described(leaf: Any) -> bool:
    """Whether a leaf of a template describes a value that it does not have."""
    if leaf is ... or isinstance(leaf, (*ABSTRACT, type)):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, jax.ShapeDtypeStruct)


def shown(leaf: Any) -> str:
    """What a message says that a template wants."""
    if leaf is ...:
        return "anything"
    try:
        return str(of_leaf(leaf, Wanted("saved")))
    except ValueError:
        return type(leaf).__name__


def _of_jax(sharding: Any) -> Any:
    """A jax.sharding.Sharding, of what stands for one."""
    for name in ("to_jax_sharding", "sharding"):
        found = getattr(sharding, name, None)
        if found is not None:
            return found() if callable(found) else found
    return sharding


def request(info: _engine.LeafInfo, want: Wanted) -> Request:
    """What to read for a leaf."""
    if not _loads(info, want):
        return Request(info)
    same = info.dtype_name == want.dtype and not want.convert
    return Request(info, "jax", want.sharding, "" if same else want.dtype)


def converted(name: str, value: Any, args: RestoreArgs) -> Any:
    """A value that was read as RestoreArgs ask for it."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return convert(name, value, of_args(args, Wanted("saved")))
    is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    saved = Wanted("jax", sharding=value.sharding, prng=is_key)
    want = of_args(args, saved)
    if not is_key:
        return convert(name, value, want)
    fits = want.shape in (None, value.shape)
    if want.kind != "jax" or want.dtype or not fits:
        raise ValueError(f"{name}: {value.aval} cannot become {want}")
    return jax.device_put(value, want.sharding)


# Exponents of the largest numbers of floating types: none becomes Inf in a type
# with the same or a larger one.
_LARGEST = {"float16": 16, "bfloat16": 128, "float32": 128, "float64": 1024}


def _loads(info: _engine.LeafInfo, want: Wanted) -> bool:
    """Read box by box onto devices; what has to be fitted comes as a whole."""
    if want.kind != "jax" or values.kind_of(info) != "array":
        return False
    if info.tag.startswith("prng:"):
        return want.prng or not want.dtype
    if want.shape is not None and want.shape != info.shape:
        return False
    # Others are looked at after they were converted.
    return (
        want.convert
        or want.dtype in ("", info.dtype_name)
        or _LARGEST.get(info.dtype_name, 1024) <= _LARGEST.get(want.dtype, 0)
    )


def convert(name: str, value: Any, want: Wanted) -> Any:
    """A value that was read as `want` has it."""
    if want.kind == "saved":
        return value
    if want.through:
        value = _cast(name, value, want.through)
    if want.kind in _PYTHON:
        return _python(name, value, want)
    array = np.asarray(value)
    if want.shape is not None and array.shape != want.shape:
        array = _fitted(array, want.shape)
    if want.dtype:
        if dtypes.NAMES[array.dtype] != want.dtype:
            given = array if hasattr(value, "dtype") else value
            try:
                array = casting.array(
                    given, dtypes.by_name(want.dtype), lossy=want.convert
                )
            except casting.Changed as error:
                raise ValueError(
                    f"{name} would change as {want.dtype}, {error}: pass "
                    "restore_args with this dtype, or strict=False (in v1: "
                    "enable_padding_and_truncation)"
                ) from None
    if want.kind == "jax":
        from ckptree.adapters import jax

        if not want.dtype and type(value) in (int, float, complex):
            _check_held(name, value, jax.held(array.dtype))
        return jax.put(array, want.sharding)
    if want.kind == "same" and type(value) in (bool, int, float):
        return array.item()
    is_scalar = want.kind == "same" and isinstance(value, np.generic)
    return array[()] if is_scalar or want.kind == "scalar" else array


def _check_held(name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """ValueError where an array of JAX of the type that it has for a number of
    Python would have another integer, or Inf."""
    with np.errstate(over="ignore"):
        made = np.asarray(value).astype(dtype)
    if np.isfinite(made) == np.isfinite(value) and (
        type(value) is not int or int(made) == value
    ):
        return
    raise ValueError(
        f"{name}: {value!r} would be {made} as {dtype}: set jax_enable_x64, "
        "or restore it as a number, by RestoreArgs()"
    )


def _cast(name: str, value: Any, dtype: str) -> Any:
    try:
        return casting.array(value, dtypes.by_name(dtype), lossy=True)
    except (TypeError, ValueError, casting.Changed) as error:
        raise ValueError(f"{name}: {value!r} as {dtype}: {error}") from None


def _python(name: str, value: Any, want: Wanted) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    try:
        made = _PYTHON[want.kind](plain)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: {plain!r} cannot become {want.kind}: {error}"
        ) from None
    if not want.convert and not casting.is_same(made, plain):
        raise ValueError(
            f"{name}: {plain!r} cannot become {want.kind} without loss: "
            f"restore it as {type(plain).__name__}, and convert it then"
        )
    return made


def _fitted(
    array: np.ndarray[Any, Any], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Each axis cut at its end, or filled with zeros."""
    common = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape))
    made = np.zeros(shape, array.dtype)
    made[common] = array[common]
    return made
