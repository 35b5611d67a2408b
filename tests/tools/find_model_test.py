# SPDX-License-Identifier: Apache-2.0
"""`ckptree find` against what `ckptree ls` says of each step, read one by one:
runs of which every save changes few of the leaves, or all; leaves come and go,
change their shapes, and have NaN and Inf. One of many seeds fails where a step
is skipped that should not be, or a leaf keeps what it had."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

STEPS = 24
NAN, INF = float("nan"), float("inf")


def number(row, name):
    """What a condition sees: None where there is no such value."""
    value = row.get(name)
    if isinstance(value, str):
        return {"NaN": NAN, "Infinity": INF, "-Infinity": -INF}[value]
    return value


def over(row, name, bound):
    value = number(row, name)
    return value is not None and bound is not None and value > bound


def doubled(row, before):
    last = number(before, "l2") if before else None
    return over(row, "l2", None if last is None else 2 * last)


# Each: the text, whether it holds for a leaf, the same one a step before (None
# where it was not there), and the number of the step.
CONDITIONS = [
    ("nan>0", lambda row, before, step: over(row, "nan", 0)),
    ("nan>0 or inf>0",
     lambda row, before, step: over(row, "nan", 0) or over(row, "inf", 0)),
    ("nan==0 and inf==0",
     lambda row, before, step: number(row, "nan") == 0
     and number(row, "inf") == 0),
    ("not nan>0", lambda row, before, step: not over(row, "nan", 0)),
    ("nan!=0", lambda row, before, step: number(row, "nan") != 0),
    ("max>2", lambda row, before, step: over(row, "max", 2)),
    ("max>2 and step>12",
     lambda row, before, step: over(row, "max", 2) and step > 12),
    ("step<5", lambda row, before, step: step < 5),
    ("step<5 and nan>0",
     lambda row, before, step: step < 5 and over(row, "nan", 0)),
    ("l2>2*prev.l2", lambda row, before, step: doubled(row, before)),
    ("l2==prev.l2",
     lambda row, before, step: before is not None
     and number(row, "l2") is not None
     and number(row, "l2") == number(before, "l2")),
    ("prev.nan>0 and nan==0",
     lambda row, before, step: before is not None
     and over(before, "nan", 0) and number(row, "nan") == 0),
    ("nan>0 and prev.nan==0",
     lambda row, before, step: before is not None
     and number(before, "nan") == 0 and over(row, "nan", 0)),
    ("since==step", lambda row, before, step: row["since"] == step),
    ("bytes>8", lambda row, before, step: row["bytes"] > 8),
    ("shape==3", lambda row, before, step: 3 in row["shape"]),
]


def save(binary, store, step, leaves, folder):
    """Saves float32 arrays by way of a file of safetensors."""
    head, data = {}, b""
    for name, values in leaves.items():
        head[name] = {"dtype": "F32", "shape": [len(values)],
                      "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(head).encode()
    path = os.path.join(folder, "step.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    subprocess.run([binary, "-C", store, "import", path, "--step", str(step)],
                   check=True, stdout=subprocess.DEVNULL)


def value_of(chance):
    pick = chance.random()
    if pick < 0.02:
        return NAN
    return INF if pick < 0.03 else chance.choice([0.0, 0.5, 1.0, 3.0])


def make(binary, store, chance, changes, folder):
    """A run of which each save changes `changes` of twelve leaves or so."""
    leaves = {f"layer_{i}/w": [1.0, 0.5] for i in range(12)}
    for step in range(1, STEPS + 1):
        for name in chance.sample(sorted(leaves), min(changes, len(leaves))):
            length = chance.choice([2, 2, 2, 3])
            leaves[name] = [value_of(chance) for _ in range(length)]
        if changes < 12 and chance.random() < 0.2:
            leaves[f"new_{step}/w"] = [value_of(chance)]
        if chance.random() < 0.2:
            del leaves[chance.choice(sorted(leaves))]
        save(binary, store, step, leaves, folder)


def said(binary, store, *words, codes=(0,)):
    done = subprocess.run([binary, "-C", store, *words, "--json"],
                          capture_output=True, text=True)
    assert done.returncode in codes, (words, done.stderr)
    return json.loads(done.stdout)


def main():
    binary = os.path.abspath(sys.argv[1])
    asked = wrong = hits = 0
    for seed, changes in enumerate([1, 2, 3, 12, 2]):
        folder = tempfile.mkdtemp()
        try:
            store = os.path.join(folder, "store")
            make(binary, store, random.Random(seed), changes, folder)
            rows = {}
            for step in range(1, STEPS + 1):
                listed = said(binary, store, "ls", str(step))["leaves"]
                rows[step] = {row["key"]: row for row in listed}
            for text, holds in CONDITIONS:
                for words in ([], ["7..15"], ["4"], ["-k", "layer_*/w"],
                              ["-k", "layer_3/w"]):
                    span = {"7..15": range(7, 16), "4": [4]}.get(
                        words[0] if words else "", rows)
                    wanted = {}
                    for step in span:
                        for key, row in rows[step].items():
                            if words[:1] == ["-k"] and not (
                                    key == words[1] or "*" in words[1]
                                    and key.startswith("layer_")):
                                continue
                            # Whether it is asked itself or not.
                            before = rows.get(step - 1, {}).get(key)
                            if not holds(row, before, step):
                                continue
                            first, _, count = wanted.get(key, (step, 0, 0))
                            wanted[key] = (first, step, count + 1)
                    found = said(binary, store, "find", text, *words,
                                 codes=(0 if wanted else 1,))["found"]
                    by_key = {row["key"]: (row["first"], row["last"],
                                           row["steps"]) for row in found}
                    # Of steps alone there is one row, without a key.
                    if text == "step<5":
                        steps = [s for s in span if s < 5]
                        wanted = {None: (steps[0], steps[-1], len(steps))} \
                            if steps else {}
                    asked += 1
                    hits += len(wanted)
                    if by_key != wanted:
                        wrong += 1
                        print(f"seed {seed}, {text!r} {words}: {by_key}\n"
                              f"  and not {wanted}")
        finally:
            shutil.rmtree(folder)
    print(f"{asked} searches with {hits} rows, {wrong} wrong")
    return 1 if wrong or hits < asked else 0


if __name__ == "__main__":
    sys.exit(main())
