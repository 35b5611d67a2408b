# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers, as states."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ckptree.arguments import BOOL, checked

GENERATORS = (
    torch.Generator,
    np.random.Generator,
    np.random.RandomState,
    random.Random,
)


def state_of(generator: Any) -> Any:
    """Of one of GENERATORS, as data.

    >>> sorted(state_of(random.Random(1)))
    ['gauss', 'has_gauss', 'version', 'words']
    """
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return dict(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return _of_numpy(generator)
    return _of_python(generator)


def set_state(generator: Any, state: Any) -> None:
    """Undoes state_of().

    >>> generator = random.Random(1)
    >>> state, drawn = state_of(generator), generator.random()
    >>> set_state(generator, state)
    >>> generator.random() == drawn
    True
    """
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        _set_python(generator, state)


def _of_numpy(generator: Any) -> Any:
    """`generator`: a RandomState, or the module numpy.random."""
    return dict(generator.get_state(legacy=False))


def _of_python(generator: Any) -> Any:
    """`generator`: a random.Random, or the module random."""
    version, words, gauss = generator.getstate()
    return {
        "version": version,
        "words": np.array(words, np.uint32),
        "has_gauss": gauss is not None,
        "gauss": 0.0 if gauss is None else gauss,
    }


def _set_python(generator: Any, state: Any) -> None:
    words = tuple(map(int, state["words"]))
    gauss = state["gauss"] if state["has_gauss"] else None
    generator.setstate((state["version"], words, gauss))


_FLAG = {name: BOOL for name in ("host", "cuda", "numpy", "python")}


@checked(_FLAG)
class Rng:
    """The random generators that are the process's own, for an app.

    A step fits where the same generators are: to go on with another number of
    CUDA devices say cuda=False, there and in what is saved from then on.

    Parameters
    ----------
    host : bool
        PyTorch's generator of the host.
    cuda : bool
        Those of all CUDA devices that the process sees, where there are any.
    numpy : bool
        That of numpy.random.
    python : bool
        That of the module random.

    Examples
    --------
    >>> app = {"rng": Rng()}
    >>> with ckptree.Store(tmp / "run") as store:
    ...     _ = ckptree.torch.save(store, 1, app).result()
    ...     drawn = torch.rand(2), random.random(), np.random.rand()
    ...     _ = ckptree.torch.load(store, app)
    >>> (torch.rand(2) == drawn[0]).all()
    tensor(True)
    >>> (random.random(), np.random.rand()) == drawn[1:]
    True
    """

    def __init__(
        self,
        *,
        host: bool = True,
        cuda: bool = True,
        numpy: bool = True,
        python: bool = True,
    ) -> None:
        self._host = host
        self._cuda = cuda
        self._numpy = numpy
        self._python = python

    def state_dict(self) -> dict[str, Any]:
        """The states as they are.

        Returns
        -------
        dict
            Of tensors, arrays and numbers, by "host", "cuda", "numpy" and
            "python".

        Examples
        --------
        >>> list(Rng(numpy=False).state_dict())
        ['host', 'python']
        """
        state: dict[str, Any] = {}
        if self._host:
            state["host"] = torch.get_rng_state()
        if self._cuda and torch.cuda.is_available():
            state["cuda"] = list(torch.cuda.get_rng_state_all())
        if self._numpy:
            state["numpy"] = _of_numpy(np.random)
        if self._python:
            state["python"] = _of_python(random)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the generators to what state_dict() returned.

        Parameters
        ----------
        state : dict
            Of the same generators.

        Raises
        ------
        ValueError
            It has others than there are here.

        Examples
        --------
        >>> rng = Rng()
        >>> state, drawn = rng.state_dict(), random.random()
        >>> rng.load_state_dict(state)
        >>> random.random() == drawn
        True
        """
        here = self.state_dict()
        counts = len(here.get("cuda", ())), len(state.get("cuda", ()))
        if set(state) != set(here) or counts[0] != counts[1]:
            raise ValueError(
                f"the state has the generators {_shown(state)}, and here are "
                f"{_shown(here)}: leave some out, as Rng(cuda=False) does"
            )
        if "host" in state:
            torch.set_rng_state(state["host"])
        if "cuda" in state:
            torch.cuda.set_rng_state_all(state["cuda"])
        if "numpy" in state:
            np.random.set_state(state["numpy"])
        if "python" in state:
            _set_python(random, state["python"])


def _shown(state: dict[str, Any]) -> str:
    return ", ".join(
        f"{len(state[name])} of cuda" if name == "cuda" else name
        for name in state
    )
