# SPDX-License-Identifier: Apache-2.0
"""States of Flax: NNX and Linen."""

import ckptree
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from program import run


class Model(nnx.Module):
    def __init__(self, rngs, width=8):
        self.first = nnx.Linear(4, width, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        # Older versions take any list.
        as_list = getattr(nnx, "List", list)
        self.layers = as_list([nnx.Linear(width, width, rngs=rngs)])
        self.shared = self.first  # Is saved once.
        self.name = "not a variable"

    def __call__(self, x):
        x = self.dropout(self.norm(self.first(x)))
        return self.layers[0](x)


@nnx.jit
def train(model, optimizer, x):
    def loss(model):
        return (model(x) ** 2).mean()

    value, gradient = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradient)
    return value


def fresh(seed=0):
    model = Model(nnx.Rngs(seed))
    return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


def assert_equal(a, b):
    a, b = (jax.tree.map(data, nnx.state(x)) for x in (a, b))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def data(x):
    key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if key else x)


X = jnp.linspace(-1, 1, 12).reshape(3, 4)


def test_training_goes_on_bit_exact(store):
    model, optimizer = fresh()
    for _ in range(3):
        train(model, optimizer, X)
    saved = {"model": model, "optimizer": optimizer}
    store.save(3, saved).result(timeout=60)
    losses = [train(model, optimizer, X) for _ in range(3)]

    other, other_optimizer = fresh(seed=9)
    restored = store.restore(
        3, {"model": other, "optimizer": other_optimizer}
    )
    assert type(restored["model"]) is Model
    assert restored["model"].shared is restored["model"].first
    assert restored["model"].name == "not a variable"
    again = [
        train(restored["model"], restored["optimizer"], X) for _ in range(3)
    ]
    np.testing.assert_array_equal(losses, again)
    assert_equal(model, restored["model"])
    assert_equal(optimizer, restored["optimizer"])
    assert not np.array_equal(other.first.kernel[...], model.first.kernel[...])


def test_abstract_models_states_and_dicts_fit_each_other(store):
    model, _ = fresh()
    store.save(1, {"model": model}).result(timeout=60)
    abstract = nnx.eval_shape(lambda: Model(nnx.Rngs(1)))
    assert_equal(store.restore(1, {"model": abstract})["model"], model)
    graph, state = nnx.split(model)
    restored = store.restore(1, {"model": state})["model"]
    assert isinstance(restored, nnx.State)
    assert_equal(nnx.merge(graph, restored), model)
    plain = store.restore(1)["model"]
    assert plain["layers"][0]["kernel"].shape == (8, 8)
    as_dict = store.restore(1, {"model": nnx.to_pure_dict(state)})["model"]
    np.testing.assert_array_equal(
        as_dict["first"]["kernel"], model.first.kernel[...]
    )


def test_a_module_may_be_the_state(store):
    model, _ = fresh()
    store.save(1, model).result(timeout=60)
    assert "first/kernel" in store[1] and "shared/kernel" not in store[1]
    assert_equal(store.restore(1, Model(nnx.Rngs(3))), model)


def test_a_restore_leaves_the_state_that_was_its_template(store):
    store.save(1, {"model": nnx.state(fresh()[0])}).result(timeout=60)
    model, _ = fresh(seed=9)
    now = nnx.state(model)
    before = jax.tree.map(data, now)
    restored = store.restore(1, {"model": now})["model"]
    assert_equal(restored, fresh()[0])
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(data, now), before)
    abstract = nnx.state(nnx.eval_shape(lambda: Model(nnx.Rngs(1))))
    store.restore(1, {"model": abstract})
    kinds = set(map(type, jax.tree.leaves(abstract)))
    assert kinds == {jax.ShapeDtypeStruct}


class OfDicts(nnx.Module):
    def __init__(self, value):
        self.held = nnx.Variable({"a": jnp.full(3, value), "b": jnp.ones(2)})


class Holder(nnx.Module):
    def __init__(self, part):
        self.part = part


def test_a_variable_whose_value_is_a_dict_comes_back(store):
    def two(part):
        return {"one": Holder(part), "two": [Holder(part)]}

    model = OfDicts(7.0)
    store.save(1, two(model)).result(timeout=60)
    restored = store.restore(1, like=two(OfDicts(0.0)))
    assert restored["one"].part is restored["two"][0].part
    assert_equal(restored["one"].part, model)
    single = {"one": Holder(OfDicts(0.0))}
    restored = store.restore(1, like=single, partial=True)["one"]
    assert_equal(restored.part, model)


def test_who_makes_errors_of_warnings_gets_none(tmp_path):
    # In a process of its own: the adapter asks NNX once, when it is loaded.
    program = """if True:
        import sys, warnings
        import ckptree
        from flax import nnx

        warnings.simplefilter("error")
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        with ckptree.Store(sys.argv[1]) as store:
            store.save(1, model).result(timeout=60)
            store.restore(1, like=model)
    """
    done = run(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_another_width_is_a_mismatch_at_every_path(store):
    store.save(1, fresh()[0]).result(timeout=60)
    with pytest.raises(ckptree.MismatchError) as error:
        store.restore(1, Model(nnx.Rngs(0), width=9))
    assert {d.problem for d in error.value.differences} == {"shape"}
    assert len(error.value.differences) == 8


def test_a_sharded_model_comes_back_sharded(store):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
    model, _ = fresh()
    spec = jax.sharding.PartitionSpec(None, "d")
    rows = jax.sharding.NamedSharding(mesh, spec)

    def place(leaf):
        return jax.device_put(leaf, rows) if leaf.shape == (8, 8) else leaf

    nnx.update(model, jax.tree.map(place, nnx.state(model)))
    store.save(1, model).result(timeout=60)
    restored = store.restore(1, model)
    plain = nnx.to_pure_dict(nnx.state(restored))
    assert plain["layers"][0]["kernel"].sharding == rows
    assert_equal(restored, model)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False)(nn.Dense(8)(x))
        return nn.Dense(2)(x)


def linen_state(seed=0):
    net = Net()
    variables = net.init(jax.random.key(seed), X)
    return TrainState.create(
        apply_fn=net.apply, params=variables["params"], tx=optax.adamw(1e-3)
    ), variables["batch_stats"]


def test_a_train_state_of_linen_comes_back(store):
    state, stats = linen_state()
    gradient = jax.tree.map(jnp.ones_like, state.params)
    state = state.apply_gradients(grads=gradient)
    saved = {"train": state, "stats": stats, "frozen": nn.FrozenDict(stats)}
    store.save(1, saved).result(timeout=60)
    template, other = linen_state(seed=4)
    restored = store.restore(
        1, {"train": template, "stats": other, "frozen": nn.FrozenDict(other)}
    )
    assert type(restored["train"]) is TrainState
    assert restored["train"].apply_fn == template.apply_fn
    assert type(restored["frozen"]) is nn.FrozenDict
    jax.tree.map(
        np.testing.assert_array_equal, restored["train"].params, state.params
    )
    jax.tree.map(
        np.testing.assert_array_equal,
        restored["train"].opt_state,
        state.opt_state,
    )
    assert restored["train"].step == 1
    assert "train/.params/Dense_0/kernel" in store[1]


def test_a_train_state_may_be_the_state(store):
    state, _ = linen_state()
    store.save(1, state).result(timeout=60)
    restored = store.restore(1, linen_state(seed=4)[0])
    assert type(restored) is TrainState
    jax.tree.map(np.testing.assert_array_equal, restored.params, state.params)
    assert store.restore(1)["params"]["Dense_0"]["kernel"].shape == (4, 8)
