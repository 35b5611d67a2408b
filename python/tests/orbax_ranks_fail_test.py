# SPDX-License-Identifier: Apache-2.0
"""Checkpointers of several processes of which one fails, or has another tree:
all of them raise it, and nothing is left behind."""

import os

import ckptree
import pytest
from orbax_ranks import run

DIFFER = """
from pathlib import Path

class Bad:
    pass

tree = ocp.PyTreeCheckpointer()
w = spread(np.arange(8.0), "x")
big = np.arange(20000.0)
big[-1] += rank
last = jax.sharding.SingleDeviceSharding(jax.devices()[-1])
one = jax.make_array_from_single_device_arrays(
    (3,), last,
    [jax.device_put(np.zeros(3, "f4"), d) for d in last.addressable_devices],
    dtype=np.float32)
states = {
    "int": {"n": 5 + rank},
    "str": {"s": {"name": f"of {rank}"}},
    "array": {"big": big},
    "local": {"local": jnp.arange(3) + rank},
    "kind": {"k": 1.0 if rank else 1},
    "shape": {"a": np.zeros(3 + rank)},
    "only": {"o": {"x": 1} if rank else {}},
    "one": {"one": one},
    "bad": {"b": [Bad()] if rank else [1]},
}
for name, state in states.items():
    error = caught(lambda: tree.save(path + "/one", {"w": w, **state}))
    say(name, *error)
document = ocp.args.JsonSave({"name": "x" * 70000 + str(rank)})
several = ocp.Checkpointer(ocp.CompositeCheckpointHandler())
args = ocp.args.Composite(about=document)
say("json", *caught(lambda: several.save(path + "/one", args=args)))
say("there", sorted(os.listdir(path)))
say("same", *caught(lambda: tree.save(path + "/one", {"w": w})))

# The same on the devices of each process: of one device, and of all.
here = Mesh(np.array(jax.local_devices()), ("d",))
local = {
    "one": jnp.arange(4.0),
    "key": jax.random.key(3),
    "split": jax.device_put(jnp.arange(8.0), NamedSharding(here, P("d"))),
}
tree.save(path + "/local", local)
args = ocp.checkpoint_utils.construct_restore_args(local)
found = tree.restore(path + "/local", item=local, restore_args=args)
say("like", plain(found) == plain(local))
found = tree.restore(path + "/local")
default = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
say("plain", found["split"].tolist(), found["split"].sharding == default)
"""


@pytest.fixture(scope="module")
def differing(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    said = run(DIFFER, 2, path, "ckptree.orbax")
    return path, [{line[0]: line[1:] for line in said[rank]} for rank in (0, 1)]


# One program for all of them: a worker of pytest runs it once.
def test_trees_that_differ(differing):
    path, said = differing
    named = {
        "int": "n is not the same on processes 0 and 1",
        "str": "s/name is not the same on processes 0 and 1",
        "array": "big is not the same on processes 0 and 1",
        "local": "local is not the same on processes 0 and 1",
        "kind": "k is int on process 0 and float on process 1",
        "shape": "a is float64(3,) on process 0 and float64(4,) on process 1",
        "only": "o/x is on process 1 and not on process 0",
        "one": "one is float32(3,) on devices of other processes alone, on "
        "process 0 and float32(3,) on process 1",
        "json": "about is not the same on processes 0 and 1",
    }
    for name, message in named.items():
        assert said[0][name] == said[1][name]
        kind, found = said[0][name]
        assert kind == "InvalidArgumentError"
        assert found.startswith(message + ". All processes save one")
    for rank, prefix in enumerate(("process 1 of 2: ", "")):
        kind, found = said[rank]["bad"]
        assert kind == "ValueError"
        assert found.startswith(f"{prefix}b/[0]: __main__.Bad is no leaf")
        # Nothing was made, and the next save is as if there was none.
        assert said[rank]["there"] == [[]]
        assert said[rank]["same"] == ["no error", "None"]
        # Orbax refuses arrays of one process alone.
        assert said[rank]["like"] == [True]
        assert said[rank]["plain"] == [list(range(8)), True]
    with ckptree.open(path / "one") as store:
        assert store.restore()["default"]["w"].tolist() == list(range(8))


FAIL = """
from pathlib import Path

class Files(ocp.AsyncCheckpointHandler):
    # Fails where, and in which process, `item` says.
    def _may_fail(self, where):
        if self.item == (where, rank):
            raise OSError(28, f"no room in {where}")
    async def async_save(self, directory, item):
        from concurrent.futures import ThreadPoolExecutor
        self.item = item
        self._may_fail("save")
        Path(directory, f"part-{rank}").write_text("x")
        return [ThreadPoolExecutor(1).submit(lambda: self._may_fail("future"))]
    def save(self, directory, item):
        self.item = item
        self._may_fail("save")
    def finalize(self, directory):
        self._may_fail("finalize")
    def restore(self, directory):
        return sorted(os.listdir(directory))

def both():
    files.save(path + "/three", item)
    files.wait_until_finished()

files = ocp.AsyncCheckpointer(Files())
for item in (("save", 0), ("save", 1), ("future", 1), ("finalize", 0)):
    say(item, *caught(both))
    alone = ocp.Checkpointer(Files())
    say(*caught(lambda: alone.save(path + "/four", item, force=True)))
item = None
say("none", *caught(both))
say(files.restore(path + "/three"))

class Raises(Exception):
    pass

def callback():
    raise Raises("of the first process")

tree = ocp.PyTreeCheckpointHandler()
options = ocp.AsyncOptions(post_finalization_callback=callback)
last = ocp.AsyncCheckpointer(tree, async_options=options)
say(*caught(lambda: last.save(path + "/five", {"n": 1})))
say(*caught(lambda: last.save(path + "/six", {"n": 1})))

# One comes too late, or not at all.
late = ocp.AsyncCheckpointer(tree, timeout_secs=1)
go = os.path.join(path, "go")
if rank == 1:
    open(go).close()
    say(*caught(lambda: late.save(path + "/late", {"n": 1})))
else:
    say(*caught(lambda: late.save(path + "/late", {"n": 1})))
    open(go, "w").close()
patient = ocp.AsyncCheckpointer(tree)
say(*caught(lambda: patient.save(path + "/late", {"n": 1})))
patient.close()
"""


def test_one_that_fails(tmp_path):
    os.mkfifo(tmp_path / "go")
    said = run(FAIL, 2, tmp_path, "ckptree.orbax")
    for rank in (0, 1):
        lines = iter(said[rank])
        for where, failing in (
            ("save", 0),
            ("save", 1),
            ("future", 1),
            ("finalize", 0),
        ):
            message = f"[Errno 28] no room in {where}"
            prefix = "" if rank == failing else f"process {failing} of 2: "
            item, kind, found = next(lines)
            assert (kind, found) == ("OSError", prefix + message), where
            # By save(), which has no futures.
            kind, found = next(lines)
            if where == "future":
                assert (kind, found) == ("no error", "None")
            else:
                assert (kind, found) == ("OSError", prefix + message), where
        assert next(lines) == ["none", "no error", "None"]
        assert next(lines) == [["part-0", "part-1"]]
        assert next(lines) == ["no error", "None"]
        kind, found = next(lines)
        if rank == 0:
            assert (kind, found) == ("Raises", "of the first process")
        else:
            assert found == "process 0 of 2: of the first process"
        kind, found = next(lines)
        assert kind == "UnavailableError"
        assert "of 2 processes 1 did not come within 1 s: 1." in found
        assert next(lines) == ["no error", "None"]
        assert list(lines) == []
    # Nothing of what failed, and no folder of a handler.
    there = ["five", "four", "go", "late", "three"]
    assert sorted(os.listdir(tmp_path)) == there
