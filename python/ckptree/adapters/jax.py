# SPDX-License-Identifier: Apache-2.0
"""States of JAX: pytrees, arrays that are spread over devices, random keys.

Nothing here needs to be called: Store.save() and Store.restore() do, where JAX
is imported.

>>> import ckptree, jax.numpy as jnp
>>> with ckptree.Store(tmp / "run") as store:
...     state = {"w": jnp.ones(3), "key": jax.random.key(1)}
...     _ = store.save(1, state).result()
...     restored = store.restore(1, like=state)
>>> bool(restored["key"] == state["key"])
True
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

import numpy as np

from ckptree.arrays import casting, dtypes, memory
from ckptree.adapters.protocol import (
    ATTRIBUTE,
    CUSTOM,
    DICT,
    DICT_KEY,
    FLATTENED,
    INDEX,
    OBJECT,
    Container,
    Expected,
    Pieces,
    Request,
    type_name,
)
from ckptree.arrays.shardings import LeafSharding
from ckptree.arrays.values import kind_of

try:
    import jax
    from jax.tree_util import (
        DictKey,
        FlattenedIndexKey,
        GetAttrKey,
        SequenceKey,
        tree_flatten_with_path,
    )
except ImportError:
    raise ImportError(
        "arrays of JAX need it: pip install 'ckptree[jax]', or jax for your "
        "device; without it, restore() gives arrays of NumPy"
    ) from None

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.arrays.values import ReadRequest

    Index = tuple[tuple[int, ...], tuple[int, ...]]  # start, shape
    _Boxes = list[tuple[tuple[int, ...] | None, np.ndarray[Any, Any]]]

PLACE = "sharding"
PLACE_TYPE = "jax.sharding.Sharding"

PRNG_TAG = "prng:"

# Read at once and then sent to devices: what a restore needs of the host's
# memory, where no array is larger. An array is cut only above the second limit:
# a chunk that is read for one of its boxes often has bytes of others, too. A
# CPU takes the memory over, so that more at once costs nothing.
_BYTES_AT_ONCE = 64 << 20
_BYTES_OF_ONE_ARRAY = 1 << 30
_BYTES_AT_ONCE_ON_CPU = 1 << 30

# Very many small arrays of one shape, type and place are sent as few and taken
# apart there: JAX takes 10 us and more over each that is sent by itself. What
# does that is compiled for each shape and type, which has to be worth it.
_ALIKE_AT_ONCE = 128
_ALIKE_AT_LEAST = 8192
_ALIKE_BYTES = 4 << 10

# jax.Array is made known to isinstance() by its own kinds of arrays.
_Array = jax.Array


# ---- Saving ----


def prefetch(state: Any) -> None:
    """Starts the copies of all arrays of `state` to the host."""
    if jax.default_backend() == "cpu":
        return
    try:
        leaves = jax.tree_util.tree_leaves(state)
    except Exception:
        return  # No pytree: the save itself says what is wrong, or nothing is.
    for leaf in leaves:
        if isinstance(leaf, _Array) and not isinstance(leaf, jax.core.Tracer):
            if not leaf.is_deleted() and not _is_key(leaf.dtype):
                leaf.copy_to_host_async()


def is_leaf(value: Any) -> bool:
    return isinstance(value, (_Array, jax.ShapeDtypeStruct))


def container(value: Any) -> Container | None:
    """The container that `value` is for JAX; None for its leaves."""
    children, treedef = tree_flatten_with_path(
        value, is_leaf=lambda other: other is not value
    )
    if treedef == _LEAF:
        return None
    parts = [(*_part(path[0]), child) for path, child in children]
    kinds = {kind for kind, _, _ in parts}
    if kinds == {ATTRIBUTE}:
        node = OBJECT
    elif kinds == {DICT_KEY}:
        node = DICT
    else:
        node = CUSTOM
    return Container(
        node, type_name(value), parts, treedef.unflatten
    )


_LEAF = jax.tree_util.tree_structure(0)


def _part(key: Any) -> tuple[int, Any]:
    if isinstance(key, DictKey):
        return DICT_KEY, key.key
    if isinstance(key, SequenceKey):
        return INDEX, key.idx
    if isinstance(key, GetAttrKey):
        return ATTRIBUTE, key.name
    if isinstance(key, FlattenedIndexKey):
        return FLATTENED, key.key
    return DICT_KEY, str(key)  # A kind of the user's own.


def pieces(value: Any) -> Pieces | None:
    """The shards of an array of JAX that this process has; None of others.

    On a CPU they are views: JAX does not give memory away that a view holds, so
    no donation can change it under a save.
    """
    return _pieces(value, spread=False)


def part(value: Any) -> Pieces | None:
    """The same where several processes save one step: each box is one's."""
    return _pieces(value, spread=True)


def _pieces(value: Any, *, spread: bool) -> Pieces | None:
    if not isinstance(value, _Array):
        return None
    if isinstance(value, jax.core.Tracer):
        raise TypeError("a value that is being traced: save outside of jit")
    if value.is_deleted():
        raise ValueError(
            "the array was deleted, or donated to a function of jit: save "
            "before the call that takes it, or save what it returned"
        )
    if not spread and not value.is_fully_addressable:
        raise NotImplementedError(
            "the array is spread over several processes: they save it together "
            "to a ckptree.Store(path, ranks=ckptree.Ranks.jax())"
        )
    tag = ""
    sharding = _plain(value.sharding)
    is_key = _is_key(value.dtype)
    if is_key:
        tag = PRNG_TAG + str(jax.random.key_impl(value))
        value = jax.random.key_data(value)
    shape = tuple(value.shape)
    boxes, own = (_spread if spread else _boxes)(value, shape)
    return Pieces(
        np.dtype(value.dtype),
        shape,
        boxes,
        tag,
        True,
        view=None if is_key else _view,
        sharding=sharding,
        own=spread and own,
    )


def _boxes(value: Any, shape: tuple[int, ...]) -> tuple[_Boxes, bool]:
    """The shards of this process, each once; and whether the whole array is
    one of them."""
    boxes: _Boxes = []
    for shard in value.addressable_shards:
        if shard.replica_id != 0:
            continue
        data = np.asarray(shard.data)
        if data.shape == shape:
            return [(None, data)], True
        start, _ = _box(shard.index, shape)
        boxes.append((start, data))
    return boxes, False


def _spread(value: Any, shape: tuple[int, ...]) -> tuple[_Boxes, bool]:
    """What this process saves of an array of several, and whether it alone has
    the whole of it. What each of them has is whole."""
    if value.is_fully_addressable:
        # Spread over the devices of this process alone: the others have one of
        # that name, too.
        return [(None, np.asarray(value))], False
    everywhere = {d.process_index for d in value.sharding.device_set}
    if value.is_fully_replicated and len(everywhere) == jax.process_count():
        return [(None, np.asarray(value.addressable_data(0)))], False
    return _boxes(value, shape)


def _view(value: Any) -> np.ndarray[Any, Any] | None:
    """The memory of an array on one device; None of others: ask pieces(),
    which takes longer."""
    if type(value.sharding) is not jax.sharding.SingleDeviceSharding:
        return None
    try:
        return np.asarray(value)
    except RuntimeError:
        return None  # It was deleted.


def _plain(sharding: Any) -> LeafSharding | None:
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return None
    return LeafSharding(dict(sharding.mesh.shape), tuple(sharding.spec))


def _is_key(dtype: Any) -> bool:
    # Most are NumPy's, and JAX takes long over each.
    return not isinstance(dtype, np.dtype) and bool(
        jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    )


def _box(index: Any, shape: tuple[int, ...]) -> Index:
    """What a shard holds: start and shape, for slices that may be open."""
    bounds = [part.indices(dim)[:2] for part, dim in zip(index, shape)]
    return (
        tuple(start for start, _ in bounds),
        tuple(stop - start for start, stop in bounds),
    )


# ---- Templates ----


def describe(value: Any) -> Expected | None:
    """What an array or jax.ShapeDtypeStruct in a template asks for."""
    abstract = type(value) is jax.ShapeDtypeStruct
    if not abstract and not isinstance(value, (_Array, jax.ShapeDtypeStruct)):
        return None
    abstract = abstract or isinstance(value, jax.ShapeDtypeStruct)
    sharding = value.sharding
    if not abstract and not getattr(value, "committed", True):
        sharding = None
    expected = _expected(value.dtype, value.shape, abstract, sharding)
    weak = getattr(value, "weak_type", False)  # Keys have none.
    return expected._replace(like=value) if weak else expected


@lru_cache(1024)
def _expected(
    dtype: Any, shape: tuple[int, ...], abstract: bool, sharding: Any
) -> Expected:
    tag = ""
    name = "uint32"
    if _is_key(dtype):
        # ShapeDtypeStruct has no public way to the implementation.
        tag = PRNG_TAG + str(dtype._impl.name)
    else:
        name = dtypes.NAMES[np.dtype(dtype)]
    return Expected("array", name, shape, tag, abstract, "jax", sharding)


def is_place(given: Any) -> bool:
    return isinstance(given, jax.sharding.Sharding)


# ---- Restoring ----


class _Job(NamedTuple):
    """A box of an array, and the devices that want it."""

    request: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    devices: list[Any]  # Empty: the default one.


def takes(info: _engine.LeafInfo) -> bool:
    return kind_of(info) == "array"


def load(
    step: _engine.Step, requests: Sequence[Request]
) -> tuple[list[Any], dict[int, str]]:
    """Arrays of leaves, as Loader.load() says. Each box that a device wants is
    read once, whatever number of devices want it."""
    changed: dict[int, str] = {}
    on_devices: list[list[Any]] = [[] for _ in requests]
    batch: list[_Job] = []
    size = 0

    def run() -> None:
        nonlocal batch, size
        _run(step, requests, batch, on_devices, changed)
        batch, size = [], 0

    with memory.without_collection():
        _check_dtypes(requests)
        groups, others = _alike(requests)
    for group in groups:
        _load_group(step, requests, group, on_devices)
    for i in others:
        request = requests[i]
        jobs = _jobs(i, request.info, request.place)
        item = dtypes.to_numpy(request.info.dtype).itemsize
        sizes = [item * math.prod(job.shape) for job in jobs]
        if batch and size + sum(sizes) > _at_once(request, jobs):
            run()
        for job, job_bytes in zip(jobs, sizes):
            if batch and size + job_bytes > _BYTES_OF_ONE_ARRAY:
                run()
            batch.append(job)
            size += job_bytes
    run()
    with memory.without_collection():
        arrays = [
            _assemble(request, parts)
            for request, parts in zip(requests, on_devices)
        ]
    return arrays, changed


def _dtype(request: Request) -> str:
    return request.dtype or request.info.dtype_name


def _at_once(request: Request, jobs: list[_Job]) -> int:
    if _dtype(request) != request.info.dtype_name:
        return _BYTES_AT_ONCE  # Copied to another type.
    for job in jobs:
        platforms = {device.platform for device in job.devices}
        if (platforms or {jax.default_backend()}) != {"cpu"}:
            return _BYTES_AT_ONCE
    return _BYTES_AT_ONCE_ON_CPU


def made(value: Any, expected: Expected, *, lossy: bool) -> Any:
    dtype = dtypes.by_name(expected.dtype)
    return put(casting.array(value, dtype, lossy=lossy), expected.place)


def put(array: np.ndarray[Any, Any], sharding: Any) -> Any:
    """An array of the host on its devices; None: the default one."""
    if sharding is not None and not sharding.is_fully_addressable:
        # Not device_put(): there processes wait for each other, to compare.
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        host = array.astype(dtype, copy=False)
        return jax.make_array_from_callback(
            host.shape, sharding, lambda index: host[index]
        )
    return jax.device_put(array, sharding)


def _check_dtypes(requests: Sequence[Request]) -> None:
    checked: set[str] = set()
    for request in requests:
        name = _dtype(request)
        if name in checked:
            continue
        checked.add(name)
        wanted = dtypes.by_name(name)
        if jax.dtypes.canonicalize_dtype(wanted) != wanted:
            raise ValueError(
                f"{request.info.name}: JAX makes {name} smaller unless "
                "jax_enable_x64 is set: set it, or restore with cast=True and "
                "a template"
            )


def _jobs(i: int, info: _engine.LeafInfo, sharding: Any) -> list[_Job]:
    shape = info.shape
    if sharding is None or info.tag.startswith(PRNG_TAG):
        return [_Job(i, (0,) * len(shape), shape, [])]
    try:
        placed = sharding.addressable_devices_indices_map(shape)
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(
            f"{info.name}: {sharding} does not fit shape {shape}: {error}"
        ) from None
    boxes: dict[Index, list[Any]] = {}
    for device, index in placed.items():
        boxes.setdefault(_box(index, shape), []).append(device)
    return [
        _Job(i, start, extent, devices)
        for (start, extent), devices in boxes.items()
    ]


def _run(
    step: _engine.Step,
    requests: Sequence[Request],
    jobs: list[_Job],
    on_devices: list[list[Any]],
    changed: dict[int, str],
) -> None:
    """Reads the boxes of `jobs` in one pass and sends them to their devices."""
    hosts = []
    reads: list[ReadRequest] = []
    for job in jobs:
        info = requests[job.request].info
        host = memory.empty(job.shape, dtypes.to_numpy(info.dtype))
        hosts.append(host)
        if host.nbytes > 0:
            reads.append((info, host, job.start, job.shape))
    step.read(reads)
    # Sent in one call each: JAX takes longer over a call than over an array.
    placed: list[tuple[int, Any, Any]] = []
    unplaced: list[tuple[int, Any]] = []
    for job, host in zip(jobs, hosts):
        name = _dtype(requests[job.request])
        if dtypes.NAMES[host.dtype] != name:
            dtype, lossy = dtypes.by_name(name), requests[job.request].lossy
            try:
                host = casting.array(host, dtype, lossy=lossy)
            except casting.Changed as what:
                changed.setdefault(job.request, str(what))
                host = casting.array(host, dtype, lossy=True)
        if not job.devices:
            unplaced.append((job.request, host))
        placed += [(job.request, host, device) for device in job.devices]
    sent = jax.device_put([h for _, h, _ in placed], [d for _, _, d in placed])
    for (request, _, _), array in zip(placed, sent):
        on_devices[request].append(array)
    sent = jax.device_put([host for _, host in unplaced])
    for (request, _), array in zip(unplaced, sent):
        on_devices[request].append(array)


def _alike(
    requests: Sequence[Request],
) -> tuple[list[list[int]], Sequence[int]]:
    """The places of requests of which very many are alike, and of the
    others."""
    if len(requests) < _ALIKE_AT_LEAST:
        return [], range(len(requests))
    found: dict[Any, list[int]] = {}
    for i, request in enumerate(requests):
        info = request.info
        key = (
            info.dtype,
            info.shape,
            request.place,
            request.dtype,
            info.tag,
            _is_weak(request),
        )
        found.setdefault(key, []).append(i)
    groups: list[list[int]] = []
    others: list[int] = []
    for alike in found.values():
        if _worth_it(requests[alike[0]], len(alike)):
            groups.append(alike)
        else:
            others += alike
    return groups, sorted(others)


def _worth_it(request: Request, count: int) -> bool:
    info, place = request.info, request.place
    item = dtypes.to_numpy(info.dtype).itemsize
    return (
        count >= _ALIKE_AT_LEAST
        and 0 < item * math.prod(info.shape) <= _ALIKE_BYTES
        and _dtype(request) == info.dtype_name
        and not _is_weak(request)
        and not info.tag.startswith(PRNG_TAG)
        and (place is None or _is_one_device(place))
    )


def _is_one_device(place: Any) -> bool:
    """Whether it is a device's own memory, as functions of jit give it."""
    if type(place) is not jax.sharding.SingleDeviceSharding:
        return False
    (device,) = place.device_set
    if device.process_index != jax.process_index():
        return False
    return bool(place == jax.device_put(0, device).sharding)


def _load_group(
    step: _engine.Step,
    requests: Sequence[Request],
    group: Sequence[int],
    on_devices: list[list[Any]],
) -> None:
    """Arrays of one shape, type and place."""
    info, place = requests[group[0]].info, requests[group[0]].place
    dtype = dtypes.to_numpy(info.dtype)
    row = dtype.itemsize * math.prod(info.shape)
    most = max(1, _BYTES_AT_ONCE // (row * _ALIKE_AT_ONCE)) * _ALIKE_AT_ONCE
    for first in range(0, len(group), most):
        some = group[first : first + most]
        # Whole blocks: what takes them apart is compiled for one length.
        rows = -(-len(some) // _ALIKE_AT_ONCE) * _ALIKE_AT_ONCE
        host = memory.empty((rows, *info.shape), dtype)
        host[len(some) :] = 0
        with memory.without_collection():
            reads: list[ReadRequest] = [
                (requests[i].info, host[j : j + 1], None, None)
                for j, i in enumerate(some)
            ]
        step.read(reads)
        blocks = [
            host[j : j + _ALIKE_AT_ONCE] for j in range(0, rows, _ALIKE_AT_ONCE)
        ]
        with memory.without_collection():
            made = (
                array
                for block in jax.device_put(blocks, place)
                for array in _apart(block)
            )
            for i, array in zip(some, made):
                on_devices[i].append(array)


def _each(block: Any) -> Any:
    return tuple(block[i] for i in range(_ALIKE_AT_ONCE))


_apart = jax.jit(_each)


def _assemble(request: Request, parts: list[Any]) -> Any:
    info, sharding = request.info, request.place
    if info.tag.startswith(PRNG_TAG):
        impl = info.tag.removeprefix(PRNG_TAG)
        if sharding is not None and not sharding.is_fully_addressable:
            return _spread_keys(parts[0], impl, sharding)
        keys = jax.random.wrap_key_data(parts[0], impl=impl)
        return keys if sharding is None else jax.device_put(keys, sharding)
    if sharding is None:
        # A weak type gives way to others.
        return _weakened(parts[0]) if _is_weak(request) else parts[0]
    if len(parts) == 1:
        if parts[0].sharding is sharding or parts[0].sharding == sharding:
            return parts[0]
    # Without parts it is of other processes alone.
    return jax.make_array_from_single_device_arrays(
        info.shape, sharding, parts, dtype=dtypes.by_name(_dtype(request))
    )


def _spread_keys(data: Any, impl: str, sharding: Any) -> Any:
    """Keys on devices of several processes, each of which has all of them."""
    host = np.asarray(data)
    if isinstance(sharding, jax.sharding.NamedSharding):
        # What a key is made of is one more axis, at the end.
        spread = jax.make_array_from_callback(
            host.shape, sharding, lambda index: host[index]
        )
        return jax.random.wrap_key_data(spread, impl=impl)
    raise NotImplementedError(
        f"keys on devices of several processes want a NamedSharding, not "
        f"{sharding}"
    )


def _is_weak(request: Request) -> bool:
    like = request.like
    return like is not None and bool(getattr(like, "weak_type", False))


def _weakened(array: Any) -> Any:
    """A scalar as one of Python is for JAX. There is no public way to
    others."""
    if array.ndim > 0:
        return array
    weak = jax.numpy.asarray(array.item())
    return weak if weak.dtype == array.dtype else array
