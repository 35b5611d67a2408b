# SPDX-License-Identifier: Apache-2.0
"""Malformed inputs: files, and words that are expressions, slices, names,
steps, ranges, flags. Each ends with the one exit code that is documented for
it, and says on standard error, in one line and a line of advice, what is wrong
(of a condition also where, in two lines between); nothing on standard output,
no byte of the store changed, nothing half-written."""

import collections
import hashlib
import os
import re
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
# What is well formed, and names no store, step or key: exit code 3. All else
# is wrong usage, 2.
NOT_THERE = {
    "latest~99", "healthy~99", "best:nosuch:min", "@nosuch", "@a b",
    "nosuch/100", "nosuch/latest", "77", "small-lr/77", "nosuch/1..2",
    "nosuch/..", "@nosuch..", "..@nosuch", "nosuch", "params/nosuch",
    "params//out", "/params", "params/out/kernel/x", "['params'", "[\"", "\"",
    "params/[", "\x01", "**/nosuch", "no\nsuch", "nosuch/store",
}
# What is no slice belongs to the key, which there is not; behind a pattern,
# too, where brackets have another meaning.
OF_THE_KEY = {"[", "]", "[0", "0]", "[0:", "[:]x"}
OF_THE_PATTERN = OF_THE_KEY | {
    "[]]", "[[0]", "[a]", "[1e3]", "[:a]", "[None]", "[True]", "[0;1]",
    "[\x01]", "[0][1]",
}

# How many of each kind there are at least, each counted once, whatever verbs
# it is given to; and in all.
LEAST = {"files": 100, "expressions": 70, "slices": 30, "names": 80}
LEAST_IN_ALL = 200


def cases():
    """Yields what kind of input it is, the input, the words that it is in, and
    the exit code that is documented for it."""
    for text in EXPRESSIONS:
        yield "expressions", text, ["find", "--", text], 2
        yield "expressions", text, ["ls", "--where", text], 2
    for text in SLICES:
        for before, absent in (("latest:params/out/kernel", OF_THE_KEY),
                               ("latest:params/*/bias", OF_THE_PATTERN)):
            code = 3 if text in absent else 2
            yield "slices", text, ["get", before + text], code
    for text in STEPS:
        code = 3 if text in NOT_THERE and text != "\x01" else 2
        yield "names", text, ["show", "--", text], code
        yield "names", text, ["tag", "--", "fresh", text], code
        yield "names", text, ["rm", "-y", "--", text], code
        yield "names", text, ["export", text, "OUT.npz"], code
    for text in RANGES:
        code = 3 if text in NOT_THERE else 2
        yield "names", text, ["log", "--", text], code
        # Every step is no range to remove, whether there are any.
        yield "names", text, ["rm", "-y", "--", text], (
            2 if text.endswith("/..") else code)
        yield "names", text, ["pin", "--", text], code
        yield "names", text, ["report", text, "-o", "OUT.html"], code
    for text in NAMES:
        yield "names", text, ["tag", "--", text, "100"], 2
    for text in BRANCHES:
        yield "names", text, ["fork", "100", "--branch=" + text], 2
    for text in KEYS:
        code = 3 if text in NOT_THERE else 2
        yield "names", text, ["get", "latest:" + text], code
        yield "names", text, ["history", "--", text], code
        if not text.startswith("params") or "/" in text.rstrip("/"):
            yield "names", text, ["export", "latest:" + text, "OUT.npz"], code
    for text in POLICIES:
        yield "policies", text, ["policy", "--set=" + text], 2
    for text in ("select", "select * from", "drop table steps", "nosuch", "",
                 "select nosuch from steps", "select 1; select 2",
                 "insert into steps values (1)", "select '", "\x01", "a\nb",
                 "attach 'x' as y", "pragma user_version=1", "select 1 --\n;x"):
        yield "expressions", text, ["sql", "--", text], 2
    for flag in ["--nosuch", "-Z", "--limit", "--limit=x", "--limit=-1",
                 "--sort=nosuch", "--columns=nosuch", "-o", "-o=xml",
                 "--where"]:
        yield "flags", flag, ["log", flag], 2
    # "-5" is a limit, but not behind a flag that wants a value.
    yield "flags", "--depth -1", ["ls", "100", "--depth", "-1"], 2
    yield "flags", "-n -1", ["ls", "100", "-n", "-1"], 2
    for words in [["nosuch"], ["no\nsuch"], ["show", "100", "2\n00"],
                  ["--nosuch"], ["get"], ["rm"],
                  ["tag", "a", "b", "c"], ["show", "100", "200"],
                  ["gc", "--budget", "fast"],
                  ["hist", "params/out/bias", "--bins", "0"],
                  ["du", "--depth", "1"], ["diff"], ["help", "nosuch"],
                  ["export", "100"], ["fork", "100"], ["completion", "tcsh"],
                  ["export", "100", "OUT"],
                  ["export", "100", "OUT", "--format", "x\ny"],
                  ["export", "100", "OUT.npz", "--rename", "x"],
                  ["report", "-o", "no/such/OUT.html"],
                  ["report", "-o", "OUT.html", "--leaf-steps", "1"],
                  ["serve", "--port", "70000"], ["serve", "-k", "a//b"],
                  ["copy", "no\nsuch", "OUT"], ["backup", "."]]:
        yield "words", " ".join(words), words, 2
    for words in [["export", "100", "no/such/OUT.npz"],
                  ["report", "-o", "OUT.html", "-k", "["],
                  ["serve", "--token-file", "no\nsuch"]]:
        yield "words", " ".join(words), words, 3
    # What a store or a file cannot be.
    for path in ("/dev/null", "/etc/passwd", "no\nsuch", "nosuch/store", ""):
        code = 3 if path in NOT_THERE else 2
        yield "names", path, ["-C", path, "log"], code
        yield "names", path, ["import", "--step", "1", path], code


def wrong_with(done, code):
    """What a command that had to refuse its input did instead; None: it did."""
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    if done.returncode != code:
        return f"exit code {done.returncode}, not {code}"
    if done.stdout:
        return f"prints {done.stdout[:80]!r}"
    if lines.pop() or not lines or not lines[0].startswith("ckptree: "):
        return "does not say what is wrong"
    # The condition, and what points into it.
    if len(lines) == 4 and lines[2].strip() == "^":
        lines = [lines[0], lines[1] + lines[3]]
    if len(lines) != 2 or not lines[1].startswith("  "):
        return "is not one line and a line of advice"
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


# Who opens a store to write leaves other ones, which say nothing of what is in
# it: who has it, and how the index is opened.
OF_THE_OPEN = re.compile(
    r"LOCK|db/(CURRENT|IDENTITY|LOCK|LOG.*|(MANIFEST|OPTIONS)-\d+|\d+\.log)")


def contents(folder):
    """The files of the store in which its data stands: digests by name."""
    found = {}
    for root, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            inside = os.path.relpath(path, folder)
            if OF_THE_OPEN.fullmatch(inside):
                continue
            with open(path, "rb") as file:
                found[inside] = hashlib.sha256(file.read()).hexdigest()
    return found


def listing(binary, store):
    """Returns what the store holds, as the reading verbs print it."""
    return [
        subprocess.run([binary, "-C", store, *words, "--json"],
                       capture_output=True, check=True).stdout
        for words in (["log", "--graph"], ["tag"], ["fork"], ["policy"])
    ]


def main():
    binary = os.path.abspath(sys.argv[1])
    scratch = tempfile.mkdtemp()
    wrong = []
    try:
        demo = store = os.path.join(scratch, "demo")
        subprocess.run([binary, "demo", store], check=True,
                       stdout=subprocess.DEVNULL)
        before = listing(binary, store)
        bytes_before = contents(store)
        runs = 0
        inputs = collections.defaultdict(set)

        def refuse(kind, given, words, code, store=store):
            nonlocal runs
            runs += 1
            inputs[kind].add(given)
            there = names_in(scratch)
            done = subprocess.run(
                [binary, *(["-C", store] if store else []), *words],
                stdin=subprocess.DEVNULL, capture_output=True, cwd=scratch)
            what = wrong_with(done, code)
            if what is None and names_in(scratch) != there:
                what = "left something"
                for path in set(names_in(scratch)) - set(there):
                    subprocess.run(["rm", "-rf", path], check=True)
            if what is None and contents(demo) != bytes_before:
                what = "changed the store"
            if what:
                wrong.append(f"{kind}: {words!r} {what}: {done.stderr!r}")

        for kind, given, words, code in cases():
            refuse(kind, given, words, code)
        for i, (end, data) in enumerate(malformed_files.files()):
            # A control character in the name of each: it is in the error.
            path = os.path.join(scratch, f"in\n{i}{end}")
            with open(path, "wb") as file:
                file.write(data)
            given = (end, data)
            new = os.path.join(scratch, "new")
            words = ["import", path, "--step", "1"]
            refuse("files", given, words, 2, new)
            refuse("files", given, words, 2)
            # What says nothing wrong has nothing to export.
            code = 3 if data == malformed_files.zipped([]) else 2
            refuse("files", given, ["export", path, "OUT.npz"], code, None)
            refuse("files", given, ["export", path, "OUT", "--format", "raw"],
                   code, None)
            os.remove(path)
        counts = {kind: len(found) for kind, found in inputs.items()}
        in_all = sum(counts.values())
        for kind, least in (*LEAST.items(), ("in all", LEAST_IN_ALL)):
            count = in_all if kind == "in all" else counts[kind]
            if count < least:
                wrong.append(f"{count} {kind}: at least {least}")
        # A closed standard output is one that cannot be written.
        for words in (["ls", "100"], ["verify"], ["show", "latest"],
                      ["help"], ["log", "--json"]):
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
    finally:
        shutil.rmtree(scratch)
    for line in wrong:
        print(line)
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    print(f"{in_all} malformed inputs in {runs} command lines, {len(wrong)} "
          "wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
