# SPDX-License-Identifier: Apache-2.0
"""What each verb prints on the demo store, held against golden/*.txt: 80 and
200 columns, ASCII and UTF-8, with and without colour, all on a terminal.

  golden_test.py BINARY            compares
  golden_test.py BINARY --renew    writes the files anew: look at the diff

A file has every form of one command line; a form that prints the same as the
one before it is not repeated. Times of a save, which no demo can fix, sizes of
files and versions of the program are replaced."""

import difflib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

from command_documents import SHOWN

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
FORMS = [
    (columns, locale, colour)
    for columns in (80, 200)
    for locale in ("C", "C.UTF-8")
    for colour in ("never", "always")
]
# A day after the demo's last step.
NOW = str(1767225600 + 36 * 2000 + 86400)
MASKS = [
    # When something was committed: of this machine's clock. As wide.
    (re.compile(rb"20(?!26-01-0)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
     b"2026-01-02T00:00:00.000Z"),
    (re.compile(rb"((?:staged|committed) after(?:\x1b\[0m)? +)[^\r\n]*"),
     rb"\1TIME"),
    (re.compile(rb"(saved by(?:\x1b\[0m)? +)[^\r\n]*"), rb"\1VERSION"),
]


def run(binary, words, store, columns, locale, colour):
    """Returns what the command prints to a terminal, and its exit code."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
    environment = {"LC_ALL": locale, "TERM": "xterm-256color", "PATH": "/bin",
                   "SOURCE_DATE_EPOCH": NOW, "CKPTREE_PAGER": "cat"}
    process = subprocess.Popen(
        [binary, "-C", store, "--color", colour, *words],
        stdin=subprocess.DEVNULL, stdout=child, stderr=child, env=environment)
    os.close(child)
    output = b""
    while True:
        try:
            piece = os.read(parent, 1 << 16)
        except OSError:  # EIO: the last one that wrote is gone.
            break
        if not piece:
            break
        output += piece
    os.close(parent)
    code = process.wait()
    for pattern, mask in MASKS:
        output = pattern.sub(mask, output)
    return output.replace(b"\r\n", b"\n"), code


def text_of(binary, words, store):
    """Returns the golden text of one command line."""
    text = "$ ckptree " + " ".join(
        f"'{word}'" if re.search(r"[^\w./:,=~-]", word) else word
        for word in words) + "\n"
    before = None
    for columns, locale, colour in FORMS:
        output, code = run(binary, words, store, columns, locale, colour)
        shown = output.decode("utf-8", "backslashreplace")
        shown = shown.replace("\x1b", "\\e")
        text += (f"--- {columns} columns, {locale}, colour {colour}, "
                 f"exit {code}\n")
        text += "(the same)\n" if shown == before else shown
        before = shown
        if shown and not shown.endswith("\n"):
            text += "\n"
    return text


def main():
    binary = os.path.abspath(sys.argv[1])
    renew = "--renew" in sys.argv
    failures = 0
    scratch = tempfile.mkdtemp()
    try:
        store = os.path.join(scratch, "demo")
        subprocess.run([binary, "demo", store], check=True,
                       stdout=subprocess.DEVNULL)
        os.makedirs(FOLDER, exist_ok=True)
        for name in os.listdir(FOLDER):
            if name.removesuffix(".txt") in SHOWN:
                continue
            if renew:
                os.remove(os.path.join(FOLDER, name))
            else:
                print(f"{name}: no command line of that name")
                failures += 1
        for name, words in SHOWN.items():
            text = text_of(binary, words, store)
            path = os.path.join(FOLDER, name + ".txt")
            if renew:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                continue
            known = ""
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    known = file.read()
            if text != known:
                failures += 1
                sys.stdout.writelines(difflib.unified_diff(
                    known.splitlines(True), text.splitlines(True),
                    f"golden/{name}.txt", "now"))
    finally:
        shutil.rmtree(scratch)
    print(f"{len(SHOWN)} command lines, {failures} differ"
          + ("; written anew" if renew else ""))
    if failures:
        print("where that is meant: tests/tools/golden_test.py BINARY --renew")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
