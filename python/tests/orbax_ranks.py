# SPDX-License-Identifier: Apache-2.0
"""Programs of several processes that run under Orbax and under ckptree.orbax:
what they have in common."""

import socket

from program import RANK, run_ranks

DEVICES = 8

# `plain(tree)` is what a tree holds in this process, for say(): of an array of
# JAX its type, sharding and the bytes of each shard.
BEGIN = f"""
import os, sys
devices = {DEVICES} // int(sys.argv[2])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={{devices}}"
""" + RANK + """
import importlib, logging, zlib
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_cpu_collectives_implementation", "gloo")
if world > 1:
    jax.distributed.initialize(
        coordinator_address=rest[0], num_processes=world, process_id=rank,
        initialization_timeout=60,
    )
ocp = importlib.import_module(rest[1])
ours = rest[1].startswith("ckptree")

def placed(spec, mesh=(2, 4)):
    devices = np.array(jax.devices()).reshape(mesh)
    return NamedSharding(Mesh(devices, ("x", "y")), P(*spec))

def spread(value, *spec, mesh=(2, 4)):
    sharding = placed(spec, mesh)
    return jax.make_array_from_callback(
        value.shape, sharding, lambda index: value[index]
    )

def leaf(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, jax.Array):
        keys = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        if keys:
            kind = str(jax.random.key_impl(value))
        shards = sorted(
            [str(shard.index), zlib.crc32(np.asarray(
                jax.random.key_data(shard.data) if keys else shard.data
            ).tobytes())]
            for shard in value.addressable_shards
        )
        spec = getattr(value.sharding, "spec", None)
        return ["jax", str(value.dtype), value.shape, str(spec), shards]
    value = np.asarray(value)
    checksum = zlib.crc32(np.ascontiguousarray(value).tobytes())
    return ["numpy", str(value.dtype), value.shape, checksum]

def plain(tree):
    flat, structure = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda value: value is None
    )
    return [[jax.tree_util.keystr(p), leaf(v)] for p, v in flat]

def raised(call):
    # The kind of an error that programs catch.
    try:
        return ["no error", plain(call())]
    except Exception as error:
        for kind in (FileNotFoundError, KeyError, NotImplementedError,
                     TimeoutError, TypeError, ValueError, Exception):
            if isinstance(error, kind):
                return [kind.__name__, ""]
"""


def free_address():
    """Where the processes of one program find each other."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return f"localhost:{found.getsockname()[1]}"


def run(code, world, path, module, *arguments, **options):
    """What each process said; of real Orbax, too, which talks on stderr."""
    return run_ranks(
        code,
        world,
        path,
        free_address(),
        module,
        *arguments,
        begin=BEGIN,
        **options,
    )
