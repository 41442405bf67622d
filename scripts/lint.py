#!/usr/bin/env python3
"""clang-tidy and gcc's analyzer over the C files of gen/, runtime/ and bench/; any finding is a failure.

    scripts/lint.py BUILD      BUILD: configured by CMake with CMAKE_EXPORT_COMPILE_COMMANDS=ON

.clang-tidy says which checks, and why not others. A file that passed is looked at again when it, a header that it
includes, a flag or a tool has changed: the marks lie in BUILD/lint. Exit status 1: there are findings.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("gen/", "runtime/", "bench/")
# gcc 12 takes the lanes of a vector for bits of a scalar, and loses sight of what the elements of an array point at: leaks
# are the address sanitizer's to find.
ANALYZER = ["-fanalyzer", "-Wno-analyzer-shift-count-overflow", "-Wno-analyzer-malloc-leak"]


def output_of(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def commands(build):
    """Of each source file the first command that compiles it: (file, arguments, folder)."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
        if file.startswith(FOLDERS):
            found.setdefault(file, (file, shlex.split(entry["command"]), entry["directory"]))
    return sorted(found.values())


def bare(arguments):
    """The command without its output and what writes dependencies."""
    kept, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("-o", "-MT", "-MF"):
            skip = True
        elif word not in ("-MD", "-c", "-Werror"):
            kept.append(word)
    return kept


def mark_of(command, folder, tools):
    """A digest of all that decides what the tools say; None if the file does not compile."""
    status, text = output_of(command + ["-E"], folder)
    return None if status else hashlib.sha256((tools + shlex.join(command) + text).encode()).hexdigest()


def look_at(job, build, tools):
    file, arguments, folder = job
    command = bare(arguments)
    command[0] = "gcc"
    mark = mark_of(command, folder, tools)
    passed = build / "lint" / (mark or "none")
    if mark and passed.exists():
        return file, ""
    _, analyzer = output_of(command + ANALYZER + ["-S", "-o", "/dev/null"], folder)
    _, tidy = output_of(["clang-tidy", "-p", str(build), "--quiet", str(ROOT / file)])
    findings = analyzer + "".join(
        line + "\n" for line in tidy.splitlines() if line and "warnings generated" not in line
        and "warning generated" not in line and "warnings treated as errors" not in line)
    if mark and not findings.strip():
        passed.write_text(file + "\n", encoding="utf-8")
    return file, findings


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    (build / "lint").mkdir(exist_ok=True)
    tools = "".join(output_of([tool, "--version"])[1] for tool in ("gcc", "clang-tidy"))
    tools += (ROOT / ".clang-tidy").read_text(encoding="utf-8") + " ".join(ANALYZER)
    jobs, bad = commands(build), 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, findings in pool.map(lambda job: look_at(job, build, tools), jobs):
            if findings.strip():
                bad += 1
                print(f"{file}:\n{findings}")
    print(f"lint: {len(jobs)} files, {bad} with findings")
    sys.exit(1 if bad else 0)


main()
