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
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from ckptree.arrays import casting, dtypes, memory
from ckptree.adapters.boxes import cut
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
    Fetched,
    Pieces,
    Request,
    type_name,
)
from ckptree.arrays.shardings import LeafSharding
from ckptree.arrays.values import kind_of
from ckptree.garbage import without_collection

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

from ckptree.adapters import jax_alike, jax_boxes, jax_device  # With JAX.
from ckptree.adapters.jax_alike import PRNG_TAG, dtype_of, is_weak
from ckptree.adapters.jax_boxes import Job, stays_on_host
from ckptree.adapters.jax_buffers import Buffers

if TYPE_CHECKING:
    from ckptree import _engine
    from ckptree.arrays.values import ReadRequest

    _Boxes = list[
        tuple[tuple[int, ...] | None, np.ndarray[Any, Any] | Fetched]
    ]

PLACE = "sharding"
PLACE_TYPE = "jax.sharding.Sharding"

# Read at once and then sent to devices, while the next is read: twice that is
# what a restore needs of the host's memory, where no array is spread and
# larger. Such an array is cut only above the second limit: a chunk that is read
# for one of its boxes often has bytes of others, too. A CPU takes the memory
# over, so that more at once costs nothing.
_BYTES_AT_ONCE = 64 << 20
_BYTES_OF_ONE_ARRAY = 1 << 30
_BYTES_AT_ONCE_ON_CPU = 1 << 30

# jax.Array is made known to isinstance() by its own kinds of arrays.
_Array = jax.Array


# ---- Saving ----


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
    no donation can change it under a save. On other devices they are fetched a
    piece at a time, and must not be donated before the save is staged.
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
    owner = _owner(value) if spread and not boxes else None
    return Pieces(
        np.dtype(value.dtype),
        shape,
        boxes,
        tag,
        True,
        view=None if is_key or not _are_views(boxes) else _view,
        sharding=sharding,
        own=spread and own,
        owner=owner,
    )


def _boxes(value: Any, shape: tuple[int, ...]) -> tuple[_Boxes, bool]:
    """The shards of this process, each once; and whether the whole array is
    one of them."""
    boxes: _Boxes = []
    for shard in value.addressable_shards:
        if shard.replica_id != 0:
            continue
        data = jax_device.memory_of(shard.data)
        if data.shape == shape:
            return [(None, data)], True
        start, _ = jax_boxes.box(shard.index, shape)
        boxes.append((start, data))
    return boxes, False


def _spread(value: Any, shape: tuple[int, ...]) -> tuple[_Boxes, bool]:
    """What this process saves of an array of several, and whether it alone has
    the whole of it. What each of them has is whole."""
    if value.is_fully_addressable:
        # Spread over the devices of this process alone: the others have one of
        # that name, too.
        if value.is_fully_replicated:
            here = value.addressable_data(0)
            return [(None, jax_device.memory_of(here))], False
        return [(None, np.asarray(value))], False
    everywhere = {d.process_index for d in value.sharding.device_set}
    if value.is_fully_replicated and len(everywhere) == jax.process_count():
        return [(None, jax_device.memory_of(value.addressable_data(0)))], False
    return _boxes(value, shape)


def _owner(value: Any) -> int | None:
    """The process that alone has an array of which nothing is here; None: there
    are several."""
    if value.addressable_shards:
        return None  # Replicas of what others save.
    processes = {d.process_index for d in value.sharding.device_set}
    return int(processes.pop()) if len(processes) == 1 else None


def _view(value: Any) -> np.ndarray[Any, Any] | None:
    """The memory of an array on one device; None of others: ask pieces(),
    which takes longer."""
    if type(value.sharding) is not jax.sharding.SingleDeviceSharding:
        return None
    try:
        return np.asarray(value) if jax_device.is_on_host(value) else None
    except RuntimeError:
        return None  # It was deleted.


def _are_views(found: _Boxes) -> bool:
    return not any(isinstance(box, Fetched) for _, box in found)


def _plain(sharding: Any) -> LeafSharding | None:
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return None
    return LeafSharding(dict(sharding.mesh.shape), tuple(sharding.spec))


def _is_key(dtype: Any) -> bool:
    # Most are NumPy's, and JAX takes long over each.
    return not isinstance(dtype, np.dtype) and bool(
        jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
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


def takes(info: _engine.LeafInfo) -> bool:
    return kind_of(info) == "array"


def load(
    step: _engine.Step, requests: Sequence[Request]
) -> tuple[list[Any], dict[int, str]]:
    """Arrays of leaves, as Loader.load() says. Each box that a device wants is
    read once, whatever number of devices want it."""
    changed: dict[int, str] = {}
    arrays: list[Any] = [None] * len(requests)
    batch: list[Job] = []
    size = 0
    buffers = Buffers(_BYTES_AT_ONCE)

    def run() -> None:
        nonlocal batch, size
        _run(step, requests, batch, buffers, on_devices, changed)
        batch, size = [], 0

    with without_collection():
        _check_dtypes(requests)
        groups, others = jax_alike.find(requests)
        # Of each that does not come as one of very many.
        on_devices: dict[int, list[Any]] = {i: [] for i in others}
    for group in groups:
        jax_alike.load(step, requests, group, arrays)
    for i in others:
        request = requests[i]
        jobs = jax_boxes.jobs(i, request.info, request.place)
        item = dtypes.to_numpy(request.info.dtype).itemsize
        sizes = [item * math.prod(job.shape) for job in jobs]
        if batch and size + sum(sizes) > _at_once(request, jobs):
            run()
        # One box of a chunk is not read here for another box of it.
        whole = len(jobs) > 1 and sum(sizes) <= _BYTES_OF_ONE_ARRAY
        for job, job_bytes in zip(jobs, sizes):
            if job_bytes > _BYTES_AT_ONCE and not whole:
                if not stays_on_host([job]):
                    _load_large(
                        step, requests, job, buffers, on_devices, changed
                    )
                    continue
            if batch and size + job_bytes > _BYTES_OF_ONE_ARRAY:
                run()
            batch.append(job)
            size += job_bytes
    run()
    with without_collection():
        for i, parts in on_devices.items():
            arrays[i] = _assemble(requests[i], parts)
    return arrays, changed


def _at_once(request: Request, jobs: list[Job]) -> int:
    if dtype_of(request) != request.info.dtype_name:
        return _BYTES_AT_ONCE  # Copied to another type.
    return _BYTES_AT_ONCE_ON_CPU if stays_on_host(jobs) else _BYTES_AT_ONCE


def made(value: Any, expected: Expected, *, lossy: bool) -> Any:
    dtype = dtypes.by_name(expected.dtype)
    return put(casting.array(value, dtype, lossy=lossy), expected.place)


def held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What JAX makes of that element type."""
    made: np.dtype[Any] = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    return made


def put(array: np.ndarray[Any, Any], sharding: Any) -> Any:
    """An array of the host on its devices; None: the default one."""
    if sharding is not None and not sharding.is_fully_addressable:
        # Not device_put(): there processes wait for each other, to compare.
        host = array.astype(held(array.dtype), copy=False)
        return _from_host(host, sharding)
    return jax.device_put(array, sharding)


def _from_host(host: np.ndarray[Any, Any], sharding: Any) -> Any:
    """On devices of which perhaps no one is here: what it is of is said."""
    return jax.make_array_from_callback(
        host.shape, sharding, lambda index: host[index], dtype=host.dtype
    )


def _check_dtypes(requests: Sequence[Request]) -> None:
    checked: set[str] = set()
    for request in requests:
        name = dtype_of(request)
        if name in checked:
            continue
        checked.add(name)
        wanted = dtypes.by_name(name)
        smaller = held(wanted)
        if smaller != wanted:
            raise ValueError(
                f"{request.info.name}: JAX makes {name} smaller unless "
                "jax_enable_x64 is set: set it, or restore with cast=True and "
                f"a template of a smaller type, as {smaller}"
            )


def _run(
    step: _engine.Step,
    requests: Sequence[Request],
    jobs: list[Job],
    buffers: Buffers,
    on_devices: dict[int, list[Any]],
    changed: dict[int, str],
) -> None:
    """Reads the boxes of `jobs` in one pass and sends them to their devices."""
    hosts, staged = _hosts(requests, jobs, buffers)
    reads: list[ReadRequest] = []
    for job, host in zip(jobs, hosts):
        if host.nbytes > 0:
            info = requests[job.request].info
            reads.append((info, host, job.start, job.shape))
    step.read(reads)
    # Sent in one call each: JAX takes longer over a call than over an array.
    placed: list[tuple[int, Any, Any]] = []
    unplaced: list[tuple[int, Any]] = []
    for i, (job, host) in enumerate(zip(jobs, hosts)):
        host = _converted(requests, job, host, changed)
        if not job.devices:
            unplaced.append((i, host))
        placed += [(i, host, place) for place in job.places()]
    sent = jax.device_put([h for _, h, _ in placed], [d for _, _, d in placed])
    others = jax.device_put([host for _, host in unplaced])
    made = [(i, array) for (i, _, _), array in zip(placed, sent)]
    made += [(i, array) for (i, _), array in zip(unplaced, others)]
    for i, array in made:
        on_devices[jobs[i].request].append(array)
    if staged:
        buffers.sent([array for i, array in made if i in staged])


def _hosts(
    requests: Sequence[Request], jobs: list[Job], buffers: Buffers
) -> tuple[list[np.ndarray[Any, Any]], set[int]]:
    """Memory of the host for the boxes, and of which boxes it is used again:
    what stays on the host is to have its own."""
    dtypes_of = [dtypes.to_numpy(requests[j.request].info.dtype) for j in jobs]
    staged: list[int] = []
    if not stays_on_host(jobs):
        staged = [i for i, j in enumerate(jobs) if not stays_on_host([j])]
    taken: dict[int, np.ndarray[Any, Any]] = {}
    if staged:
        lent = buffers.take((jobs[i].shape, dtypes_of[i]) for i in staged)
        taken = dict(zip(staged, lent))
    hosts = [
        taken[i] if i in taken else memory.empty(job.shape, dtype)
        for i, (job, dtype) in enumerate(zip(jobs, dtypes_of))
    ]
    return hosts, set(staged)


def _converted(
    requests: Sequence[Request],
    job: Job,
    host: np.ndarray[Any, Any],
    changed: dict[int, str],
) -> np.ndarray[Any, Any]:
    """Of the type that is asked for."""
    name = dtype_of(requests[job.request])
    if dtypes.NAMES[host.dtype] == name:
        return host
    dtype, lossy = dtypes.by_name(name), requests[job.request].lossy
    try:
        return casting.array(host, dtype, lossy=lossy)
    except casting.Changed as what:
        changed.setdefault(job.request, str(what))
        return casting.array(host, dtype, lossy=True)


def _load_large(
    step: _engine.Step,
    requests: Sequence[Request],
    job: Job,
    buffers: Buffers,
    on_devices: dict[int, list[Any]],
    changed: dict[int, str],
) -> None:
    """A box that is put together on its devices, piece by piece."""
    info = requests[job.request].info
    saved = dtypes.to_numpy(info.dtype)
    dtype = dtypes.by_name(dtype_of(requests[job.request]))
    devices = job.devices or [None]
    made = [
        jax.numpy.zeros(job.shape, dtype, device=device) for device in devices
    ]
    grid = step.details([info])[0]["chunk_shape"]
    for start, shape in cut(job.shape, saved.itemsize, grid, _BYTES_AT_ONCE):
        (host,) = buffers.take([(shape, saved)])
        there = tuple(a + b for a, b in zip(job.start, start))
        step.read([(info, host, there, shape)])
        host = _converted(requests, job, host, changed)
        sent = [jax.device_put(host, device) for device in devices]
        buffers.sent(sent)
        made = [_put_at(whole, part, start) for whole, part in zip(made, sent)]
    if job.memory is not None:
        made = jax.device_put(made, job.places())
    on_devices[job.request] += made


# In place, where a device can.
_put_at = jax.jit(jax.lax.dynamic_update_slice, donate_argnums=0)


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
        return _weakened(parts[0]) if is_weak(request) else parts[0]
    if len(parts) == 1:
        if parts[0].sharding is sharding or parts[0].sharding == sharding:
            return parts[0]
    # Without parts it is of other processes alone.
    return jax.make_array_from_single_device_arrays(
        info.shape, sharding, parts, dtype=dtypes.by_name(dtype_of(request))
    )


def _spread_keys(data: Any, impl: str, sharding: Any) -> Any:
    """Keys on devices of several processes, each of which has all of them."""
    host = np.asarray(data)
    if isinstance(sharding, jax.sharding.NamedSharding):
        # What a key is made of is one more axis, at the end.
        spread = _from_host(host, sharding)
        return jax.random.wrap_key_data(spread, impl=impl)
    raise NotImplementedError(
        f"keys on devices of several processes want a NamedSharding, not "
        f"{sharding}"
    )


def _weakened(array: Any) -> Any:
    """A scalar as one of Python is for JAX. There is no public way to
    others."""
    if array.ndim > 0:
        return array
    weak = jax.numpy.asarray(array.item())
    return weak if weak.dtype == array.dtype else array
