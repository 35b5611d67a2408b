# SPDX-License-Identifier: Apache-2.0
"""Malformed words: expressions, slices, names, steps, ranges, flags. Each ends
with the documented exit code and says on standard error, in one line and a
line of advice, what is wrong; nothing on standard output, nothing changed."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

EXPRESSIONS = [
    "", " ", "nan>", ">0", "nan>>0", "nan > > 0", "(nan>0", "nan>0)", "((",
    "nan>0 and", "and nan>0", "nan>0 or or inf>0", "not", "!", "nan 0",
    "nan>0 inf>0", "l2>2*", "l2>*2", "l2/", "l2 == == 2", "shape[", "shape[]",
    "shape[x]==1", "shape[0", "shape]0", "key~", "key~[", "~", "~key",
    "key~'unclosed", "'unclosed", "\"unclosed", "`unclosed", "``<1",
    "nosuch>0", "prev.nosuch>0", "prev.>0", "prev", "l2>prev", "1..2>0",
    "0x>1", "1e>2", "1e999999>x", "bytes>4XiB", "bytes>MiB", "nan>0;",
    "nan>0 && ", "|| nan>0", "nan=>0", "nan=!0", "nan<>0", "$x>0", "nan>$x",
    "@tag>0", "#", "%", "nan>0%", "l2^2>1", "{}", "[1,2]", "nan\x01>0",
    "\x1b[31m>0", "nan>0\n;", "\u00e9>", "('", "not not", "-", "--", "l2>--",
]
SLICES = [
    "[", "]", "[]]", "[[0]", "[0", "0]", "[a]", "[0:1:0]", "[::0]", "[0:1:2:3]",
    "[,]", "[0,,1]", "[0,1,2]", "[99999999999999999999]", "[1000]", "[-1000]",
    "[0.5]", "[1e3]", "[:a]", "[...,...]", "[0 1]", "[--1]", "[+]", "[0:",
    "[:]x", "[None]", "[True]", "[0;1]", "[\x01]", "[0][1]",
]
STEPS = [
    "-1", "1.5", "1e3", "0x10", "12a", "latest~", "latest~x", "latest~-1",
    "latest~~1", "latest~99", "latest~1~2", "best", "best:", "best:loss",
    "best:loss:mid", "best::min", "best:nosuch:min", "@", "@nosuch", "@a b",
    "nosuch/100", "nosuch/latest", "/100", "small-lr/", "small-lr//100",
    "small-lr/@released", "99999999999999999999", "9223372036854775808", "77",
    "small-lr/77", "LATEST", "latest ", " latest", "latest\x01", "\x1b[31m",
    "100..200", "healthy~99", "~1", "100~x",
]
RANGES = [
    "a..b", "100...200", "200..100", "100..b", "..x", "x..", "100..200..300",
    "nosuch/1..2", "nosuch/..", "small-lr/1..nosuch/2", "1-2", "100:200",
    "latest..100", "@nosuch..", "..@nosuch", "small-lr/1500..latest~x",
]
NAMES = [
    "", "a b", "a:b", "a~b", "a@b", "\x01", "\x1b[31m", "x" * 129, "a\nb", "@",
]
BRANCHES = [
    "", "main", "latest", "best", "healthy", "1a", "-a", "a b", "a/b", "a:b",
    "x" * 129, "a~b", "\x01",
]
KEYS = [
    "nosuch", "params/nosuch", "params", "params//out", "/params", "params/",
    "params/out/kernel/x", "['params'", "[\"", "\"", "re:(", "re:[",
    "params/[", "\x01", "**/nosuch",
]
POLICIES = [
    "", "latest", "latest(", "latest()", "latest(0)", "latest(-1)", "latest(x)",
    "latest(3) |", "| latest(3)", "latest(3) & &", "nosuch(3)", "every()",
    "every(0)", "every(1y)", "best(loss)", "best(loss, mid)",
    "best(loss, min, 0)", "within(7)", "budget(20XB)", "steps(5)",
    "latest(3) latest(4)", "log(0.5)", "(latest(3)", "latest(3))",
]


def cases():
    """Yields words, and the exit codes that are documented for such."""
    for text in EXPRESSIONS:
        yield ["find", "--", text], (2,)
        yield ["ls", "--where", text], (2,)
    for text in SLICES:
        yield ["get", "latest:params/out/kernel" + text], (2, 3)
    for text in STEPS:
        yield ["show", "--", text], (2, 3)
        yield ["tag", "--", "fresh", text], (2, 3)
        yield ["rm", "-y", "--", text], (2, 3)
    for text in RANGES:
        yield ["log", "--", text], (2, 3)
        yield ["rm", "-y", "--", text], (2, 3)
        yield ["pin", "--", text], (2, 3)
    for text in NAMES:
        yield ["tag", "--", text, "100"], (2,)
    for text in BRANCHES:
        yield ["fork", "100", "--branch=" + text], (2,)
    for text in KEYS:
        yield ["get", "latest:" + text], (2, 3)
        yield ["history", "--", text], (2, 3)
    for text in POLICIES:
        yield ["policy", "--set=" + text], (2,)
    for flag in ["--nosuch", "-Z", "--limit", "--limit=x", "--limit=-1",
                 "--sort=nosuch", "--columns=nosuch", "-o", "-o=xml",
                 "--where"]:
        yield ["log", flag], (2,)
    # "-5" is a limit, but not behind a flag that wants a value.
    yield ["ls", "100", "--depth", "-1"], (2,)
    yield ["ls", "100", "-n", "-1"], (2,)
    for words in [["nosuch"], ["no\nsuch"], ["show", "100", "2\n00"],
                  ["--nosuch"], ["get"], ["rm"],
                  ["tag", "a", "b", "c"], ["show", "100", "200"],
                  ["gc", "--budget", "fast"],
                  ["hist", "params/out/bias", "--bins", "0"],
                  ["du", "--depth", "1"], ["diff"], ["help", "nosuch"],
                  ["export", "100"], ["fork", "100"], ["completion", "tcsh"]]:
        yield words, (2,)


def digest(folder):
    """Returns a digest of the store's files, names and bytes."""
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(root, name)
            total.update(path.encode())
            with open(path, "rb") as file:
                total.update(hashlib.sha256(file.read()).digest())
    return total.hexdigest()


def listing(binary, store):
    """Returns what the store holds, as the reading verbs print it."""
    return [
        subprocess.run([binary, "-C", store, *words, "--json"],
                       capture_output=True, check=True).stdout
        for words in (["log", "--graph"], ["tag"], ["fork"])
    ]


def main():
    binary = os.path.abspath(sys.argv[1])
    scratch = tempfile.mkdtemp()
    wrong = []
    count = 0
    try:
        store = os.path.join(scratch, "demo")
        subprocess.run([binary, "demo", store], check=True,
                       stdout=subprocess.DEVNULL)
        before = listing(binary, store)
        bytes_before = digest(store)
        for words, codes in cases():
            count += 1
            done = subprocess.run([binary, "-C", store, *words],
                                  stdin=subprocess.DEVNULL, capture_output=True,
                                  cwd=scratch)
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            what = None
            if done.returncode not in codes:
                what = f"exit code {done.returncode}"
            elif done.stdout:
                what = f"prints {done.stdout[:80]!r}"
            elif not lines or not lines[0].startswith("ckptree: "):
                what = "does not say what is wrong"
            elif any(not line.startswith("  ") for line in lines[1:]):
                what = "is more than one line and advice"
            elif any(ord(c) < 32 for line in lines for c in line):
                what = "prints a control character"
            if what:
                wrong.append(f"{words!r} {what}: {lines}")
        # A closed standard output is one that cannot be written.
        for words in (["ls", "100"], ["verify"], ["show", "latest"],
                      ["help"], ["log", "--json"]):
            count += 1
            done = subprocess.run(
                ["sh", "-c", '"$0" "$@" >&-', binary, "-C", store, *words],
                capture_output=True)
            if (done.returncode != 2
                or b"the output cannot be written" not in done.stderr):
                wrong.append(f"{words!r} to a closed output: exit code "
                             f"{done.returncode}, {done.stderr!r}")
        if listing(binary, store) != before:
            wrong.append("the store holds something else than before")
        if os.listdir(scratch) != ["demo"]:
            wrong.append(f"left behind: {os.listdir(scratch)}")
        changed = digest(store) != bytes_before
    finally:
        shutil.rmtree(scratch)
    for line in wrong:
        print(line)
    print(f"{count} malformed inputs, {len(wrong)} wrong; files of the store "
          + ("changed" if changed else "as before"))
    return 1 if wrong or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
