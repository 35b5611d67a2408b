# SPDX-License-Identifier: Apache-2.0
"""Malformed inputs: files, and words that are expressions, slices, names,
steps, ranges, flags. Each ends with the documented exit code and says on
standard error, in one line and a line of advice, what is wrong; nothing on
standard output, nothing changed, nothing half-written."""

import collections
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

import malformed_files

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


# How many of each kind there are at least.
LEAST = {"files": 80, "expressions": 60, "slices": 30, "names": 100}


def cases():
    """Yields what kind of input it is, words, and the exit codes that are
    documented for such."""
    for text in EXPRESSIONS:
        yield "expressions", ["find", "--", text], (2,)
        yield "expressions", ["ls", "--where", text], (2,)
    for text in SLICES:
        for before in ("latest:params/out/kernel", "latest:params/*/bias"):
            yield "slices", ["get", before + text], (2, 3)
    for text in STEPS:
        yield "names", ["show", "--", text], (2, 3)
        yield "names", ["tag", "--", "fresh", text], (2, 3)
        yield "names", ["rm", "-y", "--", text], (2, 3)
        yield "names", ["export", text, "OUT.npz"], (2, 3)
    for text in RANGES:
        yield "names", ["log", "--", text], (2, 3)
        yield "names", ["rm", "-y", "--", text], (2, 3)
        yield "names", ["pin", "--", text], (2, 3)
        yield "names", ["report", text, "-o", "OUT.html"], (2, 3)
    for text in NAMES:
        yield "names", ["tag", "--", text, "100"], (2,)
    for text in BRANCHES:
        yield "names", ["fork", "100", "--branch=" + text], (2,)
    for text in KEYS:
        yield "names", ["get", "latest:" + text], (2, 3)
        yield "names", ["history", "--", text], (2, 3)
        if not text.startswith("params") or "/" in text.rstrip("/"):
            yield "names", ["export", "latest:" + text, "OUT.npz"], (2, 3)
    for text in POLICIES:
        yield "policies", ["policy", "--set=" + text], (2,)
    for text in ("select", "select * from", "drop table steps", "nosuch", "",
                 "select nosuch from steps", "select 1; select 2",
                 "insert into steps values (1)", "select '", "\x01", "a\nb",
                 "attach 'x' as y", "pragma user_version=1", "select 1 --\n;x"):
        yield "expressions", ["sql", "--", text], (2,)
    for flag in ["--nosuch", "-Z", "--limit", "--limit=x", "--limit=-1",
                 "--sort=nosuch", "--columns=nosuch", "-o", "-o=xml",
                 "--where"]:
        yield "flags", ["log", flag], (2,)
    # "-5" is a limit, but not behind a flag that wants a value.
    yield "flags", ["ls", "100", "--depth", "-1"], (2,)
    yield "flags", ["ls", "100", "-n", "-1"], (2,)
    for words in [["nosuch"], ["no\nsuch"], ["show", "100", "2\n00"],
                  ["--nosuch"], ["get"], ["rm"],
                  ["tag", "a", "b", "c"], ["show", "100", "200"],
                  ["gc", "--budget", "fast"],
                  ["hist", "params/out/bias", "--bins", "0"],
                  ["du", "--depth", "1"], ["diff"], ["help", "nosuch"],
                  ["export", "100"], ["fork", "100"], ["completion", "tcsh"],
                  ["export", "100", "OUT"],
                  ["export", "100", "OUT", "--format", "x\ny"],
                  ["export", "100", "no/such/OUT.npz"],
                  ["export", "100", "OUT.npz", "--rename", "x"],
                  ["report", "-o", "no/such/OUT.html"],
                  ["report", "-o", "OUT.html", "-k", "["],
                  ["report", "-o", "OUT.html", "--leaf-steps", "1"],
                  ["serve", "--port", "70000"], ["serve", "-k", "a//b"],
                  ["serve", "--token-file", "no\nsuch"],
                  ["copy", "no\nsuch", "OUT"], ["backup", "."]]:
        yield "words", words, (2, 3)
    # What a store or a file cannot be.
    for path in ("/dev/null", "/etc/passwd", "no\nsuch", "nosuch/store", ""):
        yield "names", ["-C", path, "log"], (2, 3)
        yield "names", ["import", "--step", "1", path], (2, 3)


def wrong_with(done, codes):
    """What a command that had to refuse its input did instead; None: it did."""
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    if done.returncode not in codes:
        return f"exit code {done.returncode}"
    if done.stdout:
        return f"prints {done.stdout[:80]!r}"
    if lines.pop() or not lines or not lines[0].startswith("ckptree: "):
        return "does not say what is wrong"
    if any(not line.startswith("  ") for line in lines[1:]):
        return "is more than one line and advice"
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for line in lines for c in line):
        return "prints a control character"
    return None


def names_in(folder):
    """The files and folders in it but those of the store, and their sizes."""
    found = {}
    for root, folders, files in os.walk(folder):
        if root == folder:
            folders.remove("demo")
        for name in folders + files:
            path = os.path.join(root, name)
            found[path] = os.path.getsize(path) if name in files else None
    return found


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
    try:
        store = os.path.join(scratch, "demo")
        subprocess.run([binary, "demo", store], check=True,
                       stdout=subprocess.DEVNULL)
        before = listing(binary, store)
        bytes_before = digest(store)
        counts = collections.Counter()

        def refuse(kind, words, codes, store=store):
            words = [str(word) for word in words]
            counts[kind] += 1
            there = names_in(scratch)
            done = subprocess.run(
                [binary, *(["-C", store] if store else []), *words],
                stdin=subprocess.DEVNULL, capture_output=True, cwd=scratch)
            what = wrong_with(done, codes)
            if what is None and names_in(scratch) != there:
                what = "left something"
                for path in set(names_in(scratch)) - set(there):
                    subprocess.run(["rm", "-rf", path], check=True)
            if what:
                wrong.append(f"{kind}: {words!r} {what}: {done.stderr!r}")

        for kind, words, codes in cases():
            refuse(kind, words, codes)
        for i, (end, data) in enumerate(malformed_files.files()):
            # A control character in the name of each: it is in the error.
            path = os.path.join(scratch, f"in\n{i}{end}")
            with open(path, "wb") as file:
                file.write(data)
            new = os.path.join(scratch, "new")
            words = ["import", path, "--step", "1"]
            refuse("files", words, (2,), new)
            refuse("files", ["export", path, "OUT.npz"], (2, 3), None)
            refuse("files", ["export", path, "OUT", "--format", "raw"], (2, 3),
                   None)
            os.remove(path)
        count = sum(counts.values())
        for kind, least in LEAST.items():
            if counts[kind] < least:
                wrong.append(f"{counts[kind]} {kind}: at least {least}")
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
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    print(f"{count} malformed inputs, {len(wrong)} wrong; files of the store "
          + ("changed" if changed else "as before"))
    return 1 if wrong or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
