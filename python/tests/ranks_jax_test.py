# SPDX-License-Identifier: Apache-2.0
"""Processes of jax.distributed save one step: arrays that are spread over them
are saved by their shards, each once, and restored onto any sharding."""

import os
import socket

import ckptree
import numpy as np
import pytest
from program import RANK, run_ranks

DEVICES = 8

# Before JAX is imported: as many devices in all, whatever the world is.
BEGIN = f"""
import os, sys
devices = {DEVICES} // int(sys.argv[2])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={{devices}}"
""" + RANK + """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_cpu_collectives_implementation", "gloo")
if world > 1:
    jax.distributed.initialize(
        coordinator_address=rest[0], num_processes=world, process_id=rank,
        initialization_timeout=60,
    )

def joined():
    ranks = ckptree.Ranks.jax(deadline=60, open_deadline=60)
    assert (ranks.rank, ranks.world) == (rank, world)
    return ckptree.Store(path, ranks=ranks)

def spread(value, *spec, mesh=(2, 4)):
    devices = np.array(jax.devices()).reshape(mesh)
    sharding = NamedSharding(Mesh(devices, ("x", "y")), P(*spec))
    return jax.make_array_from_callback(
        value.shape, sharding, lambda index: value[index]
    )
"""
VALUES = {
    "both": np.arange(16 * 24, dtype="f4").reshape(16, 24),
    "rows": np.arange(8 * 5, dtype="i4").reshape(8, 5),
    "columns": np.arange(3 * 8, dtype="f2").reshape(3, 8),
    "tied": np.arange(16, dtype="u1"),
    "whole": np.arange(7, dtype="f4"),
    "scalar": np.array(2.5, "f4"),
}
# As VALUES, by an expression of its own.
STATE = """
values = {
    "both": np.arange(16 * 24, dtype="f4").reshape(16, 24),
    "rows": np.arange(8 * 5, dtype="i4").reshape(8, 5),
    "columns": np.arange(3 * 8, dtype="f2").reshape(3, 8),
    "tied": np.arange(16, dtype="u1"),
    "whole": np.arange(7, dtype="f4"),
    "scalar": np.array(2.5, "f4"),
}
specs = {
    "both": ("x", "y"), "rows": ("y",), "columns": (None, "x"),
    "tied": (("x", "y"),), "whole": (), "scalar": (),
}

def state(mesh=(2, 4)):
    made = {k: spread(v, *specs[k], mesh=mesh) for k, v in values.items()}
    # Of this process alone, alike on all: on one device, and on all of its.
    made["local"] = jnp.arange(5)
    here = Mesh(np.array(jax.local_devices()), ("d",))
    made["split"] = jax.device_put(
        jnp.arange(8.0), NamedSharding(here, P("d"))
    )
    return made

def check(restored, mesh):
    # Each shard, by its place in what NumPy has.
    asked = state(mesh)
    for name, value in restored.items():
        assert value.sharding == asked[name].sharding, name
        host = values.get(name)
        if host is None:
            host = np.arange(5) if name == "local" else np.arange(8.0)
        for shard in value.addressable_shards:
            data = np.asarray(shard.data)
            wanted = host[shard.index].astype(data.dtype)
            assert data.tobytes() == wanted.tobytes(), (name, shard.index)
"""


@pytest.fixture
def address():
    """Where the processes of one program find each other."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return f"localhost:{found.getsockname()[1]}"


def run(code, world, address, *arguments, **options):
    path, *rest = arguments
    return run_ranks(
        STATE + code, world, path, address, *rest, begin=BEGIN, **options
    )


def expect(path):
    """Reads all of it by a process without JAX's processes, as NumPy."""
    with ckptree.open(path) as reader:
        found = reader.restore()
        assert sorted(found) == sorted([*VALUES, "local", "split"])
        for name, value in VALUES.items():
            assert found[name].tobytes() == value.tobytes(), name
            assert found[name].shape == value.shape
        assert found["split"].tobytes() == np.arange(8, dtype="f4").tobytes()
        report = reader.verify("deep")
        assert report.ok, report.findings
        info, parts = reader.step_info(), reader["latest"].metadata.parts
        # Replicas are not saved, nor is anything twice.
        assert sum(part.nbytes for part in parts) == info.logical_bytes
        return parts


@pytest.mark.parametrize("world", [2, 4])
def test_shards_are_saved_by_who_has_them(tmp_path, address, world):
    code = """
with joined() as store:
    say(store.save(1, state()).result())
    restored = store.restore(1, like=state())
    check(restored, (2, 4))
say("restored")
"""
    said = run(code, world, address, tmp_path / "s")
    assert list(said.values()) == [[[1], ["restored"]]] * world
    parts = expect(tmp_path / "s")
    assert [part.rank for part in parts] == list(range(world))
    # The rows of "both" lie with all of them.
    assert min(part.nbytes for part in parts) >= 16 * 24 * 4 // world


def test_hosts_that_share_no_folder(tmp_path, address):
    code = """
os.environ["XDG_CACHE_HOME"] = f"{path}/cache{rank}"

def apart(what, folder):
    ranks = ckptree.Ranks.jax(
        deadline=60, open_deadline=60, shared_folder=False)
    return what(f"{path}/{folder}{rank}", ranks=ranks,
                remote=f"file://{path}/far", durable="remote")

with apart(ckptree.Store, "disk") as store:
    say(store.save(1, state()).result())
    check(store.restore(1, like=state()), (2, 4))
# Other machines, and another mesh.
with apart(ckptree.CheckpointManager, "other") as manager:
    say(manager.latest_step())
    check(manager.restore(1, like=state((4, 2))), (4, 2))
    manager.save(2, state((4, 2)))
    manager.wait_until_finished()
    say(manager.latest_step())
"""
    said = run(code, 2, address, tmp_path)
    assert list(said.values()) == [[[1], [1], [2]]] * 2
    assert not (tmp_path / "disk1").exists()
    parts = expect(f"file://{tmp_path}/far")
    assert [part.rank for part in parts] == [0, 1]


@pytest.mark.parametrize("world", [1, 2])
def test_another_number_of_processes_restores(tmp_path, address, world):
    save = """
with joined() as store:
    say(store.save(1, state()).result())
"""
    run(save, 4, address, tmp_path / "s")
    expect(tmp_path / "s")
    restore = """
with joined() as store:
    for mesh in ((4, 2), (1, 8)):
        check(store.restore(1, like=state(mesh)), mesh)
    like = jax.tree.map(
        lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=v.sharding),
        state((8, 1)),
    )
    check(store.restore(1, like=like), (8, 1))
    say("restored")
    say(store.save(2, state((8, 1))).result())
"""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    said = run(restore, world, f"localhost:{port}", tmp_path / "s")
    assert list(said.values()) == [[["restored"], [2]]] * world
    expect(tmp_path / "s")


def test_a_process_reads_only_its_boxes(tmp_path, address):
    code = """
from pathlib import Path

with joined() as store:
    big = np.arange(1 << 23, dtype="f4").reshape(4096, 2048)
    array = spread(big, "x", mesh=(8, 1))
    store.save(1, {"big": array}).result()
    if rank == 0:
        # Some of what one of the two wrote is not that any more.
        files = [
            file for file in sorted(Path(path).rglob("*"))
            if "journal" not in file.parts and file.stat().st_size > 3 << 20
        ]
        files[0].chmod(0o600)
        with open(files[0], "r+b") as file:
            file.seek(1 << 20)
            file.write(b"damaged!")
    store.save(2, {"n": 1}).result()  # Until that is done.
    say(caught(lambda: store.restore(1, like={"big": array}))[0])
"""
    said = run(code, 2, address, tmp_path / "s")
    kinds = sorted(kind for (kind,), in said.values())
    assert kinds == ["CorruptionError", "no error"]
    with ckptree.open(tmp_path / "s") as reader:
        with pytest.raises(ckptree.CorruptionError):
            reader.restore(1)


def test_keys_of_jax(tmp_path, address):
    code = """
keys = jax.random.split(jax.random.key(7), 8)
data = np.asarray(jax.random.key_data(keys))
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
split = NamedSharding(mesh, P("x"))
everywhere = NamedSharding(mesh, P())
state = {
    "split": jax.random.wrap_key_data(jax.make_array_from_callback(
        data.shape, split, lambda index: data[index])),
    "alike": jax.random.wrap_key_data(jax.make_array_from_callback(
        data.shape, everywhere, lambda index: data[index])),
    "local": keys,
}
with joined() as store:
    store.save(1, state).result()
    restored = store.restore(1, like=state)
    for name, value in restored.items():
        assert value.sharding.is_equivalent_to(
            state[name].sharding, value.ndim), name
        for shard in value.addressable_shards:
            found = np.asarray(jax.random.key_data(shard.data))
            assert found.tobytes() == data[shard.index].tobytes(), name
    say("restored")
"""
    said = run(code, 2, address, tmp_path / "s")
    assert said == {0: [["restored"]], 1: [["restored"]]}


def test_an_array_on_devices_of_one_process(tmp_path, address):
    code = """
from jax.sharding import SingleDeviceSharding
array = jax.make_array_from_callback(
    (3,), SingleDeviceSharding(jax.devices()[-1]),
    lambda index: np.arange(3.0, dtype="f4"),
) if rank == world - 1 else jax.make_array_from_single_device_arrays(
    (3,), SingleDeviceSharding(jax.devices()[-1]), [], dtype=np.float32)
with joined() as store:
    say(*caught(lambda: store.save(1, {"one": array, "n": 1}).result()))
    saved = store.save(1, {"one": array, "n": 1}, per_rank=["one"])
    say(*caught(saved.result))
"""
    said = run(code, 2, address, tmp_path / "s")
    for rank in said:
        (kind, message), saved = said[rank]
        # Its process cannot tell it from one that each has for itself.
        assert kind == ("InvalidArgumentError" if rank else "ValueError")
        assert "one: the array is on devices of process 1 alone" in message
        assert "name it in per_rank" in message
        assert saved == ["no error", "1"]
    with ckptree.open(tmp_path / "s") as reader:
        assert reader.restore(1)["one"].tolist() == [0, 1, 2]


def test_a_mesh_of_one_process(tmp_path, address):
    code = """
keys = jax.random.split(jax.random.key(7), 8)
half = jax.devices()[4:]
there = NamedSharding(Mesh(np.array(half), ("d",)), P("d"))
scalar = NamedSharding(Mesh(np.array(half), ("d",)), P())
value = np.arange(16.0, dtype="f4")

def on(shape, dtype, sharding):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

one = jax.make_array_from_callback(
    value.shape, there, lambda index: value[index], dtype=value.dtype)
with joined() as store:
    state = {"m": {"one": one}, "n": 1.5, "a": value, "keys": keys}
    say(*caught(lambda: store.save(1, state).result())[:1])
    say(store.save(1, state, per_rank=["m/one"]).result())
    restored = store.restore(1, like={
        "m": {"one": on((16,), "f4", there)}, "n": on((), "f4", scalar),
        "a": on((16,), "f4", there), "keys": on((8,), keys.dtype, there),
    }, cast=True)
    data = np.asarray(jax.random.key_data(keys))
    hosts = {"a": value, "n": np.array(1.5, "f4"), "one": value, "keys": data}
    made = {**restored.pop("m"), **restored}
    for name, array in made.items():
        assert array.sharding.device_set == set(half), name
        for shard in array.addressable_shards:
            part = shard.data
            if name == "keys":
                part = jax.random.key_data(part)
            wanted = hosts[name][shard.index]
            assert np.asarray(part).tobytes() == wanted.tobytes(), name
    say(*[len(made[n].addressable_shards) for n in sorted(made)])
"""
    said = run(code, 2, address, tmp_path / "s")
    assert said == {
        0: [["ValueError"], [1], [0, 0, 0, 0]],
        1: [["InvalidArgumentError"], [1], [4, 4, 4, 4]],
    }


def test_what_they_have_of_their_own_differs(tmp_path, address):
    code = """
with joined() as store:
    say(*caught(store.save(1, {"seed": jnp.arange(3) + rank}).result))
    own = {"rng": {str(rank): jnp.arange(3) + rank}}
    say(*caught(store.save(1, own, per_rank=["rng"]).result))
"""
    said = run(code, 2, address, tmp_path / "s")
    for rank in said:
        (kind, message), saved = said[rank]
        assert kind == "InvalidArgumentError"
        assert "seed is not the same on ranks 0 and 1" in message
        assert saved == ["no error", "1"]
    with ckptree.open(tmp_path / "s") as reader:
        found = reader.restore(1)["rng"]
    assert {k: v.tolist() for k, v in found.items()} == {
        "0": [0, 1, 2],
        "1": [1, 2, 3],
    }


def test_one_process_alone_cannot_save_what_is_spread(tmp_path, address):
    code = """
with ckptree.Store(path + str(rank)) as store:
    say(*caught(lambda: store.save(1, state())))
"""
    said = run(code, 2, address, tmp_path / "s")
    for rank in said:
        kind, message = said[rank][0]
        assert kind == "NotImplementedError"
        assert message.startswith("both: ")
        assert "ranks=ckptree.Ranks.jax()" in message


def test_the_name_of_the_job_is_waited_for(tmp_path, address):
    os.mkfifo(tmp_path / "go")
    code = """
go = os.path.join(os.path.dirname(path), "go")
if rank == 1:
    say(*caught(lambda: ckptree.Ranks.jax(open_deadline=0.5)))
    open(go, "w").close()
else:
    open(go).close()
"""
    said = run(code, 2, address, tmp_path / "s")
    kind, message = said[1][0]
    assert kind == "UnavailableError"
    assert "rank 1 of 2 did not hear the name of the job within 0.5" in message


def test_each_call_names_another_job(tmp_path, address):
    code = """
say(*[ckptree.Ranks.jax().job for _ in range(3)])
"""
    said = run(code, 2, address, tmp_path / "s")
    assert said[0] == said[1]
    assert len(set(said[0][0])) == 3
