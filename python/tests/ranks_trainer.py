#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trial: processes of JAX train together and save by a manager of ranks; one
of them is killed at a random moment and the others are ended, again and again.
Each start goes on from what the manager restores.

  ranks_trainer.py [--kills N] [--seed N] [WORLD ...]

What must hold: the store opens; no step is lost that rank 0 was told of; each
step that is there, and what the training ends with, is bit for bit that of a
training which nobody interrupted. Prints a line for each number of processes,
which scripts/trial_summary adds up; fails where something is wrong.
"""

import argparse
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 60
ROWS, COLUMNS, BATCH = 64, 16, 32
SPREAD = ("w", "momentum")


# ---- One process of the training ----


def joined(rank, world, port):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=f"localhost:{port}",
        num_processes=world,
        process_id=rank,
        initialization_timeout=120,
    )
    return Mesh(np.array(jax.devices()), ("x",))


def beginning(mesh):
    """Parameters and momentum in shards, and what all have alike."""

    def spread(value, *spec):
        return jax.make_array_from_callback(
            value.shape, NamedSharding(mesh, P(*spec)), lambda at: value[at]
        )

    rng = np.random.default_rng(7)
    w = rng.standard_normal((ROWS, COLUMNS)).astype("f4")
    return {
        "w": spread(w, "x"),
        "bias": spread(np.zeros(COLUMNS, "f4")),
        "momentum": spread(np.zeros_like(w), "x"),
        "key": spread(np.asarray(jax.random.key_data(jax.random.key(3)))),
    }


def trained(mesh):
    """The function of a step: a batch by the state's own key, spread over all
    devices; the gradient is summed between them."""
    data = NamedSharding(mesh, P("x"))
    everywhere = NamedSharding(mesh, P())

    def loss(parameters, x, y):
        guess = jnp.tanh(x @ parameters["w"] + parameters["bias"])
        return jnp.mean((guess - y) ** 2)

    @jax.jit
    def step(state):
        key = jax.random.wrap_key_data(state["key"])
        key, draw = jax.random.split(key)
        x = jax.random.normal(draw, (BATCH, ROWS))
        x = jax.lax.with_sharding_constraint(x, data)
        y = jnp.sin(x[:, :COLUMNS])
        parameters = {"w": state["w"], "bias": state["bias"]}
        slope = jax.grad(loss)(parameters, x, y)
        momentum = 0.9 * state["momentum"] + slope["w"]
        made = {
            "w": state["w"] - 0.1 * momentum,
            "bias": state["bias"] - 0.1 * slope["bias"],
            "momentum": momentum,
            "key": jax.random.key_data(key),
        }
        return {
            name: jax.lax.with_sharding_constraint(
                value, data if name in SPREAD else everywhere
            )
            for name, value in made.items()
        }

    return step


def train(rank, world, port, path, interval, keep, tell):
    """Goes on to the last step; rank 0 tells what was committed."""
    mesh = joined(rank, world, port)
    state = beginning(mesh)
    step_of = trained(mesh)
    own, first = {str(rank): rank}, 1
    manager = ckptree.CheckpointManager(
        path,
        ranks=ckptree.Ranks.jax(deadline=60, open_deadline=120),
        save_interval_steps=interval,
        save_on_steps=[STEPS],
        max_to_keep=keep,
    )
    with manager:
        last = manager.latest_step()
        if last is not None:
            restored = manager.restore(
                like={"state": state, "own": own},
                partial=["state/**", f"own/{rank}"],
            )
            state, own = restored["state"], restored["own"]
            first = last + 1
        state = jax.block_until_ready(state)
        tell("training")
        for step in range(first, STEPS + 1):
            state = step_of(state)
            own = {str(rank): own[str(rank)] * 31 % 1009 + step}
            # The arrays of JAX are copied when they are there; the steps of
            # all processes go on in the meantime.
            saved = manager.save(
                step, {"state": state, "own": own}, per_rank=["own"]
            )
            if saved and step % 4 == 0:
                manager.wait_until_finished()
                tell(f"committed {step}")
        manager.wait_until_finished()
        tell(f"committed {STEPS}")
    tell("done")


# ---- The trial ----


class Crew:
    """The processes of one start, forked from this one, which has imported all
    and started nothing."""

    def __init__(self, world, path, interval=3, keep=3):
        with socket.socket() as found:
            found.bind(("localhost", 0))
            port = found.getsockname()[1]
        self.told = b""
        self._read, write = os.pipe()
        self.pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                self._run(rank, world, port, path, interval, keep, write)
            self.pids.append(pid)
        os.close(write)

    def _run(self, rank, world, port, path, interval, keep, write):
        os.close(self._read)
        log = os.open(
            f"{path}.log{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )
        os.dup2(log, 1)
        os.dup2(log, 2)

        def tell(line):
            if rank == 0:
                os.write(write, f"{line}\n".encode())

        status = 1
        try:
            train(rank, world, port, path, interval, keep, tell)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            # The threads of JAX may wait for processes that are gone.
            os._exit(status)

    def hear(self, until=None, seconds=None):
        """Until a line was told, or time is over; False where all ended."""
        end = None if seconds is None else time.monotonic() + seconds
        while until is None or until not in self.told:
            left = None if end is None else max(0, end - time.monotonic())
            if not select.select([self._read], [], [], left)[0]:
                return True
            came = os.read(self._read, 1 << 16)
            if not came:
                return False
            self.told += came
        return True

    def end(self):
        """What they exited with; they are ended where they run on."""
        self.hear(seconds=0)
        os.close(self._read)
        return [os.waitpid(pid, 0)[1] for pid in self.pids]

    def committed(self):
        lines = self.told.decode().splitlines()
        return [int(x.split()[1]) for x in lines if x.startswith("committed")]


def look(path, unbroken):
    """The steps of a store, and those of them that are not bit for bit those of
    the training that nobody interrupted."""
    try:
        with ckptree.open(path) as reader, ckptree.open(unbroken) as other:
            steps = list(reader)
            return {
                "steps": steps,
                "others": [
                    n for n in steps if leaves(reader[n]) != leaves(other[n])
                ],
                "whole": reader.verify("deep").ok,
            }
    except ckptree.StoreNotFoundError:
        # Killed before there was one.
        return {"steps": [], "others": [], "whole": True}
    except ckptree.Error as error:
        return {"error": str(error)}


def leaves(step):
    """All of a step, as bytes by their names."""
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in flat(step.restore()).items()
    }


def flat(tree, name=""):
    if not isinstance(tree, dict):
        return {name: tree}
    return {
        path: value
        for key, child in tree.items()
        for path, value in flat(child, f"{name}/{key}").items()
    }


def elsewhere(call, *arguments):
    """What a call says, in a process of its own: who is forked from one that
    opened a store cannot save."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = json.dumps(call(*arguments)).encode()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    status = os.waitpid(pid, 0)[1]
    if status:
        return {"error": f"the reader ended with {status}"}
    return json.loads(said)


class Trial:
    def __init__(self, world, seed, folder):
        self.world, self.folder = world, folder
        self.random = random.Random(1000 * seed + world)
        self.kills = self.lost = self.torn = self.unopenable = self.wrong = 0
        # Each step of a training that nobody interrupts, and how long it takes
        # once it has begun.
        path = f"{folder}/unbroken{world}"
        crew = Crew(world, path, interval=1, keep=None)
        crew.hear(b"training\n")
        began = time.monotonic()
        crew.hear()
        self.seconds = time.monotonic() - began
        statuses = crew.end()
        if any(statuses):
            raise SystemExit(f"unbroken, {statuses}:\n{log_of(path, world)}")
        self.unbroken = path
        found = elsewhere(look, path, path)
        if found["steps"] != list(range(1, STEPS + 1)) or not found["whole"]:
            raise SystemExit(f"unbroken: {found}")

    def run(self, kills):
        life = 0
        while self.kills < kills:
            life += 1
            path = f"{self.folder}/run{self.world}-{life}"
            told, done = 0, False
            while not done:
                crew = Crew(self.world, path)
                killed = self.kills < kills and self._kill(crew)
                self.kills += killed
                if not killed:
                    crew.hear()
                statuses = crew.end()
                told = max([told, *crew.committed()])
                done = b"done\n" in crew.told
                # Who was killed may have been done by then.
                if not killed and (any(statuses) or not done):
                    self.wrong += 1
                    print(f"ended by {statuses}:", log_of(path, self.world))
                    break
                self._look(path, told, done)
            shutil.rmtree(path, ignore_errors=True)

    def _kill(self, crew):
        """One of them, at some moment; then the others. False: they had ended
        before."""
        if self.random.random() < 0.75:
            crew.hear(b"training\n")
            moment = self.random.random() * self.seconds
        else:
            moment = self.random.random() * 2 * self.seconds
        victim = self.random.randrange(self.world)
        # What the others do until they are ended.
        after = self.random.choice([0, 0.005, 0.05])
        if not crew.hear(b"done\n", moment) or b"done\n" in crew.told:
            return False
        os.kill(crew.pids[victim], signal.SIGKILL)
        crew.hear(b"done\n", after)
        for pid in crew.pids:
            os.kill(pid, signal.SIGKILL)
        return True

    def _look(self, path, told, done):
        found = elsewhere(look, path, self.unbroken)
        if "error" in found:
            self.unopenable += 1
            print(f"cannot be read: {found['error']}")
            return
        steps = found["steps"]
        if max([0, *steps]) < told or (done and max(steps) != STEPS):
            self.lost += 1
            print(f"told {told}, and there is {steps}")
        if found["others"] or not found["whole"]:
            self.torn += 1
            print(f"not what was trained: {found}")


def log_of(path, world):
    texts = []
    for rank in range(world):
        with open(f"{path}.log{rank}", errors="replace") as log:
            texts.append(f"rank {rank}: {log.read()[-2000:]}")
    return "\n".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("world", type=int, nargs="*", default=[2, 4, 8])
    options = parser.parse_args()
    # More of the processes that are fewer: they start sooner.
    shares = [1 / world for world in options.world]
    wrong, left = 0, options.kills
    with tempfile.TemporaryDirectory() as folder:
        for n, world in enumerate(options.world):
            began = time.monotonic()
            trial = Trial(world, options.seed, folder)
            kills = max(1, round(left * shares[n] / sum(shares[n:])))
            trial.run(kills)
            left -= trial.kills
            wrong += (
                trial.lost + trial.torn + trial.unopenable + trial.wrong
            )
            print(
                f"trial ranks of jax, {world} processes: {trial.kills} trials, "
                f"{trial.kills} fired, {trial.kills} died: {trial.lost} lost, "
                f"{trial.torn} torn, {trial.unopenable} unopenable, "
                f"{trial.wrong} otherwise wrong; seed {options.seed}, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
