# SPDX-License-Identifier: Apache-2.0
"""Small trainings of PyTorch, and their states as data that is equal where
every bit is."""

import ckptree.torch
import numpy as np
import torch


class Net(torch.nn.Module):
    """Tied, of two types, with a buffer and a layout of its own."""

    def __init__(self, width=4):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.hidden = torch.nn.Linear(width, width, dtype=torch.bfloat16)
        self.head = torch.nn.Linear(width, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        return self.head(self.hidden(x.to(torch.bfloat16)).float())


def made(seed, steps=0, width=4):
    torch.manual_seed(seed)
    model = Net(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    trained(model, optimizer, steps)
    return model, optimizer


def trained(model, optimizer, steps):
    for step in range(steps):
        tokens = torch.arange(step, step + 8) % 11
        loss = torch.nn.functional.cross_entropy(model(tokens), tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bits(tensor):
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def shown(state):
    """A state as data that is equal where every bit is."""
    if isinstance(state, torch.Tensor):
        return str(state.dtype), tuple(state.shape), bits(state)
    if isinstance(state, np.ndarray):
        return str(state.dtype), state.shape, state.tobytes()
    if isinstance(state, dict):
        pairs = {str(k): shown(v) for k, v in state.items()}
        return dict(sorted(pairs.items()))
    if isinstance(state, (list, tuple)):
        return type(state), [shown(v) for v in state]
    return type(state), state


def state_of(*objects):
    return shown([thing.state_dict() for thing in objects])


def saved(store, app, step=1):
    ckptree.torch.save(store, step, app).result(timeout=60)


class Loader:
    """As torchdata's StatefulDataLoader: its state is of any form."""

    def __init__(self):
        self.position, self.rest, self.asked = 0, None, 0

    def state_dict(self):
        self.asked += 1
        state = {"position": self.position, "_snapshot": {"workers": [None]}}
        if self.rest is not None:
            state["rest"] = self.rest
        return state

    def load_state_dict(self, state):
        self.position, self.rest = state["position"], state.get("rest")
