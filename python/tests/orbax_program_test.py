# SPDX-License-Identifier: Apache-2.0
"""Two real programs, each trained under Orbax and under ckptree from the same
script: a classifier of digits, with NNX and with Linen's TrainState. Stopped in
the middle and resumed: equal bytes at the end, and equal lists of steps."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training import train_state
from sklearn.datasets import load_digits

from orbax_both import assert_same

STEPS = 60
STOP = 37


def batches():
    digits = load_digits()
    images = (digits.images / 16).astype("f4")[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    for step in range(STEPS):
        chosen = order[step * 16 : step * 16 + 16]
        yield step, images[chosen], digits.target[chosen]


# ---- NNX, and Orbax's manager ----


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.out = nnx.Linear(8 * 8 * 8, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        return self.out(x.reshape(len(x), -1))


@nnx.jit
def nnx_step(model, optimizer, images, labels):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(
            model(images), labels
        ).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def train_nnx(ocp, directory, until):
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    options = ocp.CheckpointManagerOptions(
        save_interval_steps=5, max_to_keep=3, keep_period=20
    )
    lists = []
    with ocp.CheckpointManager(directory, options=options) as manager:
        begin = 0
        if manager.latest_step() is not None:
            state = {
                "model": nnx.state(model),
                "optimizer": nnx.state(optimizer),
            }
            restored = manager.restore(
                manager.latest_step(),
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(state),
                    config=ocp.args.JsonRestore(),
                ),
            )
            nnx.update(model, restored.state["model"])
            nnx.update(optimizer, restored.state["optimizer"])
            begin = restored.config["next"]
        for step, images, labels in batches():
            if step < begin:
                continue
            if step == until:
                break
            loss = nnx_step(model, optimizer, images, labels)
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(
                        {
                            "model": nnx.state(model),
                            "optimizer": nnx.state(optimizer),
                        }
                    ),
                    config=ocp.args.JsonSave({"next": step + 1, "rate": 1e-3}),
                ),
                metrics={"loss": float(loss)},
            )
            lists.append(list(manager.all_steps()))
        manager.wait_until_finished()
        lists.append(list(manager.all_steps()))
    return nnx.to_pure_dict(nnx.state(model)), lists


def test_nnx_with_a_manager(tmp_path):
    found = {}
    for name in ("orbax.checkpoint", "ckptree.orbax"):
        ocp = importlib.import_module(name)
        _, before = train_nnx(ocp, tmp_path / name, until=STOP)
        weights, after = train_nnx(ocp, tmp_path / name, until=STEPS)
        found[name] = weights, before + after
    one, other = found.values()
    assert one[1] == other[1] and one[1][-1] == [0, 20, 40, 45, 50, 55]
    assert_same(one[0], other[0])
    whole, _ = train_nnx(ocp, tmp_path / "whole", until=STEPS)
    assert_same(other[0], whole)  # As if it had never stopped.
    # What each saved reads back the same.
    trees = []
    for name in found:
        with importlib.import_module(name).CheckpointManager(
            tmp_path / name
        ) as manager:
            trees.append([manager.restore(step)["state"] for step in (20, 55)])
    assert_same(_alike(trees[0]), _alike(trees[1]))


def _alike(tree):
    """Without a template a state of NNX is the dict that nnx.to_pure_dict()
    makes of it; Orbax makes str of its keys, and dicts of its variables."""
    if isinstance(tree, list):
        return [_alike(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) == ["value"]:
        return tree["value"]
    return {str(key): _alike(value) for key, value in tree.items()}


# ---- Linen, and flax.training.checkpoints ----


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Conv(8, (3, 3))(x))
        return linen.Dense(10)(x.reshape(len(x), -1))


@jax.jit
def linen_step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, labels
        ).mean()

    return state.apply_gradients(grads=jax.grad(loss_of)(state.params))


def train_linen(checkpoints, directory, until):
    model = Linen()
    params = model.init(jax.random.key(0), jnp.ones((1, 8, 8, 1)))["params"]
    state = train_state.TrainState.create(
        apply_fn=model.apply, params=params, tx=optax.adam(1e-3)
    )
    state = checkpoints.restore_checkpoint(directory, state)
    lists = []
    for step, images, labels in batches():
        if step < state.step:
            continue
        if step == until:
            break
        state = linen_step(state, images, labels)
        if step % 4 == 3:
            checkpoints.save_checkpoint(
                directory, state, step + 1, keep=2, keep_every_n_steps=12
            )
            lists.append(checkpoints.available_steps(directory))
    return jax.tree.map(np.asarray, state.params), lists


@pytest.mark.filterwarnings("ignore:no checkpoint in")
def test_linen_with_flax_checkpoints(tmp_path):
    found = {}
    for name in ("flax.training.checkpoints", "ckptree.flax.checkpoints"):
        checkpoints = importlib.import_module(name)
        _, before = train_linen(checkpoints, str(tmp_path / name), until=STOP)
        weights, after = train_linen(
            checkpoints, str(tmp_path / name), until=STEPS
        )
        raw = checkpoints.restore_checkpoint(str(tmp_path / name), None)
        found[name] = weights, before + after, jax.tree.map(np.asarray, raw)
    one, other = found.values()
    assert one[1] == other[1]
    assert_same(one[0], other[0])
    assert_same(one[2], other[2])
