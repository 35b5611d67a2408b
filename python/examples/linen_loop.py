# SPDX-License-Identifier: Apache-2.0
"""Trains a small module of Flax Linen with optax, and goes on from the newest
step.

  python linen_loop.py STORE [STEPS]
"""

import sys

import ckptree
import jax
import jax.numpy as jnp
import optax
from flax import linen
from flax.training.train_state import TrainState


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.tanh(linen.Dense(16)(x)))


@jax.jit
def train(state, x):
    def loss_of(params):
        return jnp.mean((state.apply_fn(params, x) - x.sum(1)[:, None]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def main(path: str, steps: int) -> None:
    net = Net()
    params = net.init(jax.random.key(0), jnp.zeros((1, 8)))
    state = TrainState.create(
        apply_fn=net.apply, params=params, tx=optax.adam(1e-2)
    )
    with ckptree.CheckpointManager(path, max_to_keep=3) as manager:
        # The step is an int in a new state, and an array after a train().
        state, newest = manager.store.restore_or(state, cast=True)
        first = 0 if newest is None else newest + 1
        print(f"begins at step {first}")
        for step in range(first, steps):
            x = jax.random.normal(jax.random.key(step), (32, 8))
            state, loss = train(state, x)
            manager.save(step, state, metrics={"loss": loss})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
