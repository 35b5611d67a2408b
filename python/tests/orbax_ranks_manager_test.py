# SPDX-License-Identifier: Apache-2.0
"""Managers of several processes: the same training under Orbax and under
ckptree.orbax keeps the same steps on each of them; what fails."""

import os

import ckptree
import pytest
from again import again
from orbax_ranks import run

STATE = """
def state(step):
    w = np.arange(32, dtype="f4").reshape(8, 4) + step
    r = np.arange(3, dtype="f4") * step
    return {"w": spread(w, "x", "y"), "r": spread(r), "n": step}

def like(mesh=(4, 2)):
    def described(shape, *spec):
        return jax.ShapeDtypeStruct(
            shape, np.float32, sharding=placed(spec, mesh))
    return {"w": described((8, 4), "x"), "r": described((3,)), "n": 0}

def args(step):
    return ocp.args.StandardSave(state(step))

def managed(name, **options):
    return ocp.CheckpointManager(
        path + "/" + name, options=ocp.CheckpointManagerOptions(**options))
"""
PARTS = {
    "a loop": """
options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2)
manager = ocp.CheckpointManager(
    path + "/run", options=options, metadata={"lr": 0.1})
tell(list(manager.all_steps()), manager.latest_step())
for step in range(8):
    tell(manager.should_save(step), manager.save(step, args=args(step)))
manager.wait_until_finished()
tell(sorted(manager.all_steps()), manager.latest_step(), manager.best_step())
told(lambda: manager.restore(6))
wanted = ocp.args.StandardRestore(like())
told(lambda: manager.restore(None, args=wanted))
told(lambda: manager.save(6, args=args(6), force=True))
told(lambda: manager.save(9, args=args(9), force=True))
manager.wait_until_finished()
tell(sorted(manager.all_steps()))
told(lambda: manager.delete(6))
told(lambda: manager.delete(77))
told(lambda: manager.restore(77))
tell(sorted(manager.all_steps()), manager.metadata().custom_metadata)
manager.close()
read = managed("run", read_only=True)
tell(sorted(read.all_steps()), read.save(10, args=args(10)))
wanted = ocp.args.StandardRestore(like((8, 1)))
told(lambda: read.restore(9, args=wanted))
read.close()
""",
    "the best": """
def best():
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, best_fn=lambda metrics: metrics["loss"],
        best_mode="min", enable_async_checkpointing=False)
    return ocp.CheckpointManager(
        path + "/best", options=options, item_names=("state", "about"))

def items(step):
    return ocp.args.Composite(
        state=ocp.args.PyTreeSave(state(step)),
        about=ocp.args.JsonSave({"step": step}))

with best() as manager:
    for step, loss in enumerate([5.0, 3.0, 4.0, 1.0, 2.0]):
        tell(manager.save(step, args=items(step), metrics={"loss": loss},
                          custom_metadata={"s": step}))
    tell(sorted(manager.all_steps()), manager.best_step(),
         manager.latest_step(), manager.metrics(3))
    told(lambda: manager.restore(3).state)
    tell(manager.restore(3).about, manager.metadata(3).custom_metadata)
with best() as manager:
    tell(sorted(manager.all_steps()), manager.best_step())
    tell(manager.save(9, args=items(9), metrics={"loss": 0.5}))
    tell(sorted(manager.all_steps()), manager.best_step())
""",
    "functions": """
def every_third(step, latest):
    return step % 3 == 0

class Odd(ocp.checkpoint_managers.SaveDecisionPolicy):
    def should_save(self, step, previous_steps, *, context):
        return step.step % 2 == 1

for name, options in {
    "third": {"should_save_fn": every_third, "max_to_keep": 1},
    "odd": {"save_decision_policy": Odd(),
            "preservation_policy": ocp.checkpoint_managers.LatestN(2)},
}.items():
    with managed(name, **options) as manager:
        tell([manager.save(step, args=args(step)) for step in range(7)])
        manager.wait_until_finished()
        tell(list(manager.all_steps()))
""",
    "v1": """
v1 = importlib.import_module(rest[1] + ".experimental.v1")
policies = v1.training.save_decision_policies
with v1.training.Checkpointer(
    path + "/v1", save_decision_policy=policies.FixedIntervalPolicy(2)
) as checkpointer:
    tell([checkpointer.save(step, state(step)) for step in range(5)])
    tell([info.step for info in checkpointer.checkpoints])
    told(lambda: checkpointer.load(4))
    told(lambda: checkpointer.load(2, like()))
    tell(checkpointer.save_async(7, state(7), force=True).result())
    told(lambda: checkpointer.save(7, state(8)))
    tell([info.step for info in checkpointer.checkpoints])
v1.save(path + "/alone", state(1))
tell(v1.delete(path + "/v1/4") if ours else True)
told(lambda: v1.delete(path + "/alone"))
told(lambda: v1.delete(path + "/alone"))
told(lambda: v1.load(path + "/alone"))
""",
    # A signal to one of them: all save the same step.
    "a preemption": """
import itertools, signal
from jax.experimental import multihost_utils

with managed("preempted", save_interval_steps=10 ** 6) as manager:
    saved = []
    for step in itertools.count():
        if step == 5 and rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        multihost_utils.sync_global_devices("step")  # As training does.
        if manager.save(step, args=args(step)):
            saved.append(step)
        if manager.reached_preemption(step):
            manager.wait_until_finished()
            break
    tell(saved == [0, step], sorted(manager.all_steps()) == saved)
    steps = multihost_utils.process_allgather(np.array(saved))
    tell(bool((steps == steps[0]).all()))
""",
}
LOOP = STATE + "".join(
    f"""
def tell(*what): say({name!r}, *what)
def told(call): say({name!r}, *raised(call))
{code}"""
    for name, code in PARTS.items()
)


@pytest.mark.parametrize("world", [2, again(4)])
def test_each_process_sees_what_it_sees_with_orbax(tmp_path, world):
    theirs, ours = [
        run(LOOP, world, tmp_path / module, module)
        for module in ("orbax.checkpoint", "ckptree.orbax")
    ]
    assert list(theirs) == list(ours) == list(range(world))
    for rank in range(world):
        for name in PARTS:
            said = [line[1:] for line in ours[rank] if line[0] == name]
            wanted = [line[1:] for line in theirs[rank] if line[0] == name]
            assert len(said) > 1
            assert said == wanted, (rank, name)
        assert ["a preemption", True, True] in ours[rank]
    with ckptree.open(tmp_path / "ckptree.orbax" / "run") as store:
        assert [part.rank for part in store[9].metadata.parts] == list(
            range(world)
        )
        report = store.verify("deep")
        assert report.ok, report.findings


DECIDE = """
from pathlib import Path

# Clocks, functions and metrics of the others count for nothing.
class Mine(ocp.checkpoint_managers.SaveDecisionPolicy):
    def should_save(self, step, previous_steps, *, context):
        return step.step % 2 == 0 if rank == 0 else 1 / 0

asked = []
def by_function(step, latest):
    asked.append(step)
    return step % 2 == 0 if rank == 0 else 1 / 0

for name, options in {"policy": {"save_decision_policy": Mine()},
                      "function": {"should_save_fn": by_function}}.items():
    with managed(name, **options) as manager:
        say(name, [manager.save(step, args=args(step)) for step in range(5)])
        manager.wait_until_finished()
        say(name, manager.all_steps())

best = {"best_fn": lambda metrics: metrics["loss"], "max_to_keep": 2}
with managed("metrics", **best) as manager:
    for step in range(4):
        loss = -float(step) if rank == 0 else float("nan")
        manager.save(step, args=args(step), metrics={"loss": loss})
    manager.wait_until_finished()
    say("metrics", manager.all_steps(), manager.best_step(),
        manager.metrics(0))

# What one fails at, all raise; the next step is saved.
class Files(ocp.CheckpointHandler):
    def save(self, directory, args):
        if args.item == rank:
            raise OSError(28, "no room")
        Path(directory, f"part-{rank}").write_text(str(args.item))
    def restore(self, directory, args=None):
        return sorted(os.listdir(directory))

@ocp.args.register_with_handler(Files, for_save=True, for_restore=True)
class FilesArgs(ocp.args.CheckpointArgs):
    def __init__(self, item=None):
        self.item = item

def both(step, item, n=0):
    return ocp.args.Composite(
        files=FilesArgs(item), state=ocp.args.StandardSave({"n": n}))

called = []
callback = ocp.AsyncOptions(post_finalization_callback=lambda: called.append(1))
with managed("fails", async_options=callback) as manager:
    def save(item, n=0):
        manager.save(0, args=both(0, item, n))
        manager.wait_until_finished()
    for item in (0, 1):
        say("fails", *caught(lambda: save(item)))
    say("differs", *caught(lambda: save(7, n=rank)))
    say("saves", manager.save(0, args=both(0, 7)))
    manager.wait_until_finished()
    say("saves", manager.all_steps(), manager.restore(0).files, called)

# The policy is asked on the first process, which fails.
class Fails:
    def should_preserve(self, checkpoints, *, context):
        raise ZeroDivisionError("of the policy")

with managed("keeps", preservation_policy=Fails()) as manager:
    manager.save(0, args=args(0))
    say("keeps", *caught(manager.wait_until_finished))
    say("keeps", manager.all_steps())

# A checkpointer saves a step of a run that the processes have open.
with managed("beside") as manager:
    manager.save(0, args=args(0))
    manager.wait_until_finished()
    tree = ocp.PyTreeCheckpointer()
    tree.save(path + "/beside/5/default", state(5))
    same = plain(manager.restore(5)) == plain(state(5))
    say("beside", manager.all_steps(), same)
    if rank == 1:  # Any process reads by itself.
        with managed("beside", read_only=True) as reader:
            same = plain(reader.restore(5)) == plain(state(5))
            say("reads", reader.all_steps(), same)
    with managed("beside", max_to_keep=1) as second:
        second.save(6, args=args(6))
        second.wait_until_finished()
    say("beside", manager.all_steps())

some = ocp.options.MultiprocessingOptions(
    primary_host=1, active_processes={1}, barrier_sync_key_prefix="own")
if rank == 1:
    with managed("own", create=False, multiprocessing_options=some) as manager:
        manager.save(0, args=ocp.args.StandardSave({"n": 1}))
        manager.wait_until_finished()
        say("own", manager.all_steps())
"""


def test_the_first_process_decides(tmp_path):
    said = run(STATE + DECIDE, 2, tmp_path, "ckptree.orbax")
    for rank in (0, 1):
        lines = {}
        for name, *line in said[rank]:
            lines.setdefault(name, []).append(line)
        saved = [True, False, True, False, True]
        assert lines["policy"] == lines["function"] == [[saved], [[0, 2, 4]]]
        # The newest stays beside the best.
        assert lines["metrics"][0][1:] == [0, {"loss": 0.0}]
        assert lines["metrics"][0][0] == said[0][4][1]
        for failing, (kind, message) in enumerate(lines["fails"]):
            prefix = "" if rank == failing else f"process {failing} of 2: "
            assert (kind, message) == ("OSError", f"{prefix}[Errno 28] no room")
        ((kind, message),) = lines["differs"]
        assert kind == "InvalidArgumentError"
        assert message.startswith("state/n is not the same on processes 0 and")
        called = [1] if rank == 0 else []
        assert lines["saves"] == [[True], [[0], ["part-0", "part-1"], called]]
        (kind, message), (steps,) = lines["keeps"]
        assert steps == [0]
        if rank == 0:
            assert (kind, message) == ("ZeroDivisionError", "of the policy")
        assert lines["beside"] == [[[0, 5], True], [[6]]]
    assert ["own", [0]] in said[1] and ["reads", [0, 5], True] in said[1]
    there = [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert there == []
