#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says what part of the lines of each reader its fuzz target reached; scripts/fuzz --coverage runs it.

tests/fuzz/readers.txt has the sources of each target, and what of them is no reader's work. From the file of counts of
each target (build-fuzz/profiles/TARGET.profraw) comes a line for each target, and with --lines those that were missed."""
import argparse
import pathlib
import re
import subprocess
import sys


class Readers:
    """tests/fuzz/readers.txt: `target: source…` and `except source "text" reason`."""

    def __init__(self, path):
        self.sources = {}
        self.exceptions = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = line.split("#", 1)[0].strip() if line.lstrip().startswith("#") else line.strip()
            if not line:
                continue
            if line.startswith("except "):
                found = re.fullmatch(r'except (\S+) "(.+)" (\S.*)', line)
                if not found:
                    sys.exit(f"{path}:{number}: not understood")
                self.exceptions.setdefault(found[1], []).append(found[2])
            else:
                target, _, names = line.partition(":")
                self.sources.setdefault(target, []).extend(names.split())

    def excepted(self, root, source):
        """Numbers of the lines of the functions or statements whose first line has one of the texts."""
        lines = (root / source).read_text(encoding="utf-8").splitlines()
        numbers = set()
        for text in self.exceptions.get(source, []):
            begins = [number for number, line in enumerate(lines) if text in line]
            if not begins:
                sys.exit(f"tests/fuzz/readers.txt: {source} has no line with {text}")
            for begin in begins:
                numbers.update(range(begin + 1, end_of(lines, begin) + 2))
        return numbers


def end_of(lines, begin):
    """Index of the last line of what begins there: where its braces are closed, or it ends with a semicolon."""
    depth = 0
    opened = False
    for number in range(begin, len(lines)):
        for letter in re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", lines[number]):
            depth += {"{": 1, "}": -1}.get(letter, 0)
            opened = opened or letter == "{"
        if depth <= 0 and (opened or lines[number].rstrip().endswith(";")):
            return number
    return len(lines) - 1


def tool(clang, name):
    answer = subprocess.run([clang, f"-print-prog-name={name}"], capture_output=True, text=True, check=True)
    path = answer.stdout.strip()
    version = re.search(r"-(\d+)$", clang)
    for candidate in [path, f"{name}-{version[1]}" if version else name, name]:
        try:
            subprocess.run([candidate, "--version"], capture_output=True, check=True)
            return candidate
        except (OSError, subprocess.CalledProcessError):
            continue
    sys.exit(f"no {name} is here: scripts/setup --fuzz --no-build gets one")


def counts_of(arguments, target):
    """{source: {line: times it ran}} of our own sources."""
    profile = arguments.build / "profiles" / target
    subprocess.run([tool(arguments.clang, "llvm-profdata"), "merge", "-sparse", f"{profile}.profraw", "-o",
                    f"{profile}.profdata"], check=True)
    exported = subprocess.run([tool(arguments.clang, "llvm-cov"), "export", "-format=lcov", "-skip-functions",
                               f"-instr-profile={profile}.profdata", str(arguments.build / "tests" / f"fuzz_{target}")],
                              capture_output=True, text=True, check=True).stdout
    counts = {}
    lines = {}
    for row in exported.splitlines():
        if row.startswith("SF:"):
            path = pathlib.Path(arguments.build, row[3:]).resolve()
            inside = path.is_relative_to(arguments.root)
            lines = counts.setdefault(str(path.relative_to(arguments.root)), {}) if inside else {}
        elif row.startswith("DA:"):
            number, count = row[3:].split(",")[:2]
            lines[int(number)] = lines.get(int(number), 0) + int(count)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--clang", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--least", type=float, default=90)
    parser.add_argument("--lines", action="store_true", help="print the lines that were missed")
    parser.add_argument("targets", nargs="+")
    arguments = parser.parse_args()
    arguments.root = arguments.root.resolve()
    arguments.build = arguments.build.resolve()
    readers = Readers(arguments.root / "tests/fuzz/readers.txt")
    too_few = []
    rows = ["commit\ttarget\tlines\treached\tpercent"]
    for target in arguments.targets:
        if target not in readers.sources:
            sys.exit(f"tests/fuzz/readers.txt has no sources of {target}")
        counts = counts_of(arguments, target)
        of_target = reached = 0
        for source in readers.sources[target]:
            excepted = readers.excepted(arguments.root, source)
            if source not in counts:
                sys.exit(f"{target} does not have {source}")
            text = (arguments.root / source).read_text(encoding="utf-8").splitlines()
            wanted = {line: count for line, count in counts[source].items() if line not in excepted}
            of_target += len(wanted)
            reached += sum(count > 0 for count in wanted.values())
            if arguments.lines:
                for line in sorted(line for line, count in wanted.items() if count == 0):
                    print(f"{source}:{line}: {text[line - 1]}")
        percent = 100 * reached / max(of_target, 1)
        rows.append(f"{arguments.commit}\t{target}\t{of_target}\t{reached}\t{percent:.1f}")
        print(f"{target:<15} {reached:>5} of {of_target:>5} lines, {percent:5.1f} %")
        if percent < arguments.least:
            too_few.append(target)
    (arguments.build / "coverage.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    if too_few:
        sys.exit(f"error: less than {arguments.least:g} % of the reader's lines: {', '.join(too_few)}")


if __name__ == "__main__":
    main()
