# SPDX-License-Identifier: Apache-2.0
"""Trains a small Flax NNX model on scikit-learn's digits, spread over 8 devices
that XLA makes of one processor; saves as it goes, and goes on from the newest
step where there is one, bit by bit as if it had never been stopped.

  python digits.py --store FOLDER [--steps 80] [--save-every 10] [--quiet]
"""

import argparse
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import ckptree
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 128, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(128, 16, rngs=rngs)  # 10, and 6 that never are.

    def __call__(self, images):
        return self.out(self.dropout(nnx.relu(self.hidden(images))))


@nnx.jit
def train(model, optimizer, images, labels):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(
            model(images), labels
        ).mean()

    value, gradient = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradient)
    return value


def spread(model, mesh):
    """Kernels and biases in columns over the axis "model"; the rest, counters
    and keys of random numbers, on one device."""

    def place(leaf):
        if leaf.ndim == 0:
            return leaf
        spec = PartitionSpec(*[None] * (leaf.ndim - 1), "model")
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    nnx.update(model, jax.tree.map(place, nnx.state(model)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    batches = NamedSharding(mesh, PartitionSpec("data"))

    model = Classifier(nnx.Rngs(0))
    spread(model, mesh)
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    order = np.random.default_rng(0)

    def state():
        return {
            "model": model,
            "optimizer": optimizer,
            "order": order.bit_generator.state,
        }

    with ckptree.Store(options.store) as store:
        start = 0
        if "latest" in store:
            start = store.step_info().step
            restored = store.restore(like=state())
            model, optimizer = restored["model"], restored["optimizer"]
            order.bit_generator.state = restored["order"]
            print(f"goes on from step {start}", flush=True)
        for step in range(start + 1, options.steps + 1):
            chosen = order.integers(0, len(images), 64)
            loss = train(
                model,
                optimizer,
                jax.device_put(images[chosen], batches),
                jax.device_put(labels[chosen], batches),
            )
            if step % options.save_every == 0 or step == options.steps:
                jax.block_until_ready(nnx.state((model, optimizer)))
                begun = time.perf_counter()
                store.save(step, state(), metrics={"loss": float(loss)})
                stalled = (time.perf_counter() - begun) * 1e3
                if not options.quiet:
                    print(
                        f"step {step}: save stalled {stalled:.1f} ms, "
                        f"loss {loss:.4f}",
                        flush=True,
                    )
    model.eval()
    right = jnp.argmax(model(images)[:, :10], axis=1) == labels
    print(f"{float(right.mean()):.1%} of the digits are read right")


if __name__ == "__main__":
    main()
