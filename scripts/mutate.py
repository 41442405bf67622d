"""Makes mutants and counts those that the tests notice; scripts/mutate.sh says how."""

import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BUILD = pathlib.Path("build-mutate")
BAR = 0.95
SECONDS = 20  # a test that takes longer hangs

# Sources, the functions that count (all, or those of these globs), and the tests that matter, those that notice most
# first.
SOURCES = {
    "runtime/product/pack.c": (["*"], ["runtime_test_format", "runtime_test_image", "runtime_test_open", "runtime_test_faults"]),
    "runtime/product/source.c": (["*"], ["runtime_test_image", "runtime_test_faults", "runtime_test_open"]),
    "runtime/product/open.c": (["*"], ["runtime_test_format", "runtime_test_open", "runtime_test_misuse", "runtime_test_faults", "runtime_test_image"]),
    "runtime/product/tables.c": (["*"], ["runtime_test_table", "runtime_test_tables", "runtime_test_faults", "runtime_test_image"]),
    "runtime/format/rows.c": (["*"], ["runtime_test_table_text", "runtime_test_table", "fuzz_table_replay", "runtime_test_faults"]),
    "runtime/format/table.c": (["*"], ["runtime_test_table_text", "runtime_test_table"]),
    "runtime/cuda/launch.c": (["*check*", "may_launch", "bad_*", "gen_launch", "gen_preload", "load*"],
                              ["runtime_test_launch", "runtime_test_misuse", "runtime_test_parts", "runtime_test_image",
                               "runtime_test_faults"]),
    "runtime/cuda/device.c": (["*"], ["runtime_test_device", "runtime_test_misuse"]),
    "bench/common/problem_text.c": (["*"], ["test_problem"]),
    "runtime/families/la_decode/family.c": (["check*", "refuse"], ["test_edges", "test_la_decode_host", "test_la_decode_slots"]),
    "runtime/families/mla_decode/family.c": (["check*", "refuse"], ["test_edges", "test_mla_decode_host", "test_mla_decode_args"]),
    "runtime/families/mla_decode/launch.c": (["check*", "most_*"], ["test_edges", "test_mla_decode_args", "test_mla_decode_host"]),
    "runtime/families/mla_sparse/family.c": (["check*"], ["test_edges", "test_mla_sparse"]),
    "runtime/families/mla_sparse/launch.c": (["check*"], ["test_edges", "test_mla_sparse"]),
    "runtime/families/attn_fwd/family.c": (["check*", "refuse"], ["test_edges", "test_attn_fwd_host", "test_attn_fwd_args"]),
    "runtime/families/attn_fwd/launch.c": (["check*", "no_*", "most_of"], ["test_edges", "test_attn_fwd_args", "test_attn_fwd_host"]),
    "runtime/families/kda/shape.c": (["check*", "gen__kda_check*", "gen__kda_refuse"],
                                     ["test_edges", "test_kda_prefill", "test_kda_stages", "test_kda_segments"]),
    "runtime/families/kda/lengths.c": (["*"], ["test_kda_prefill", "test_kda_bwd_args"]),
    "runtime/families/kda_bwd/family.c": (["check*"], ["test_edges", "test_kda_bwd_args", "test_kda_bwd_plan"]),
    "runtime/families/kda_decode/args.c": (["check*"], ["test_edges", "test_kda_decode_args", "test_kda_decode_host"]),
}

# Mistakes in the generator that a reviewer made by hand: a text of a source, what stands there instead, and the tests.
BY_HAND = [
    ("gen/util/file.c", "O_CREAT | O_EXCL", "O_CREAT", ["test_limits"]),
    ("gen/util/file.c", "errno == EEXIST);", "errno != EEXIST);", ["test_limits"]),
    ("gen/util/file.c", "close(fd) != 0 && ok", "close(fd) != 0 && 0", ["test_limits"]),
    ("gen/util/file.c", "stat(path, &st) == 0 && !S_ISREG(st.st_mode)", "0", ["test_limits", "test_cache"]),
    ("gen/expand/source.c", "name[i + 1] == '.'", "name[i + 1] != '.'", ["test_units"]),
    ("gen/compile/scratch_dir.c", "take(fd) && still_there(fd, path)", "take(fd)", ["test_limits"]),
    ("gen/compile/scratch_dir.c", "take(fd) && still_there(fd, path)", "still_there(fd, path)", ["test_limits"]),
]

# Mutants that no test can notice, a line each as --list prints them, then two spaces, `#` and the reason.
EQUIVALENT = pathlib.Path("scripts/mutate_equivalent.txt")

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\d[\w.]*(?:[eE][+-]\d+\w*)?)
  | (?P<op><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""", re.X | re.S | re.M)
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
WORDS_BEHIND = ("return", "goto", "break", "continue")


def tokens_of(text):
    return [(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text) if m.lastgroup != "skip"]


def functions(tokens):
    """Names, and the range of tokens of each body."""
    depth, name, begin = 0, None, 0
    for i, (_, text, _) in enumerate(tokens):
        if text == "{":
            if depth == 0:
                name = None
                if tokens[i - 1][1] == ")":  # behind the parameters
                    level, k = 0, i - 1
                    while True:
                        level += {")": 1, "(": -1}.get(tokens[k][1], 0)
                        if level == 0:
                            break
                        k -= 1
                    name = tokens[k - 1][1]
                begin = i
            depth += 1
        elif text == "}":
            depth -= 1
            if depth == 0 and name:
                yield name, begin, i


def closing(tokens, i):
    level = 0
    while True:
        level += {"(": 1, ")": -1}.get(tokens[i][1], 0)
        if level == 0:
            return i
        i += 1


def conditions(tokens, begin, end):
    """The tokens of conditions: of `if`, and of what is returned or set where it compares; loops go on until they are
    done, and that tests notice."""
    found, i = set(), begin
    while i < end:
        text = tokens[i][1]
        if text == "for":
            i = closing(tokens, i + 1)
        elif text in ("if", "while"):
            last = closing(tokens, i + 1)
            found.update(range(i, last))
            i = last
        elif text in ("return", "="):
            last = next(k for k in range(i, end + 1) if tokens[k][1] in (";", "{", "}"))
            if any(tokens[k][1] in OTHER for k in range(i, last)):
                found.update(range(i, last))
        i += 1
    return found


def clauses(tokens, begin, end):
    """Of a condition, the parts between its `||`; the whole where it has none."""
    level, first = 0, begin
    for i in range(begin, end):
        text = tokens[i][1]
        level += {"(": 1, ")": -1}.get(text, 0)
        if level == 0 and text == "||":
            yield first, i
            first = i + 1
    yield first, end


def mutants_of(source, wanted):
    text = pathlib.Path(source).read_text()
    tokens = tokens_of(text)
    found = []

    def add(kind, at, end, new):
        line = text.count("\n", 0, at) + 1
        found.append({"source": source, "kind": kind, "at": at, "end": end, "new": new, "line": line,
                      "tests": SOURCES[source][1], "old": " ".join(text[at:end].split()), "code": text.splitlines()[line - 1].strip()})

    for name, begin, end in functions(tokens):
        if not any(fnmatch.fnmatch(name, glob) for glob in wanted):
            continue
        tested = conditions(tokens, begin, end)
        for i in range(begin, end):
            kind, token, at = tokens[i]
            if token in OTHER and i in tested:
                add("comparison", at, at + len(token), OTHER[token])
            elif kind == "number" and i in tested and re.fullmatch(r"\d+[uUlL]*", token) and tokens[i - 1][1] != "[":
                digits = re.match(r"\d+", token).group()
                add("constant", at, at + len(token), str(int(digits) + 1) + token[len(digits):])
            elif token == "if" and tokens[i + 1][1] == "(":
                last = closing(tokens, i + 1)
                behind = tokens[last + 1][1] if tokens[last + 1][1] != "{" else tokens[last + 2][1]
                if behind not in WORDS_BEHIND and not behind.endswith("status"):
                    continue
                for first, stop in clauses(tokens, i + 2, last):
                    add("dropped", tokens[first][2], tokens[stop - 1][2] + len(tokens[stop - 1][1]), "0")
    return text, found


def mutants_by_hand(texts):
    found = []
    for source, old, new, tests in BY_HAND:
        text = texts.setdefault(source, pathlib.Path(source).read_text())
        if text.count(old) != 1:
            sys.exit(f"mutate.py: {source} has {text.count(old)} times `{old}`, which BY_HAND wants once")
        at = text.index(old)
        found.append({"source": source, "kind": "by hand", "at": at, "end": at + len(old), "new": new, "old": old,
                      "line": text.count("\n", 0, at) + 1, "code": "", "tests": tests})
    return found


def identity(mutant):
    return f"{mutant['source']}: {mutant['kind']}: {mutant['code']}: {mutant['old']} -> {mutant['new']}"


def sample(mutants, count):
    """Evenly over all, and the same as long as the code is."""
    def draw(mutant):
        return hashlib.sha256((identity(mutant) + str(mutant["line"] % 7)).encode()).digest()
    return sorted(sorted(mutants, key=draw)[:count], key=lambda m: (m["source"], m["at"]))


def link_command(test):
    lines = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", test], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    command = lines[-1]
    if command.startswith(": && "):
        command = command[5:]
    return command.removesuffix(" && :")


class Bench:
    def __init__(self):
        self.compile = {}
        for entry in json.loads((BUILD / "compile_commands.json").read_text()):
            self.compile.setdefault(os.path.relpath(entry["file"]), entry)
        self.link = {}

    def prepare(self, tests):
        subprocess.run(["cmake", "--build", str(BUILD), "-j", str(os.cpu_count()), "--target", "fake_cuda", *tests],
                       check=True, stdout=subprocess.DEVNULL)
        for test in sorted(tests):
            if test not in self.link:
                self.link[test] = link_command(test)

    def is_noticed(self, mutant, text):
        """By which test; None: by no one."""
        with tempfile.TemporaryDirectory(prefix="mutant.") as folder:
            source = pathlib.Path(folder) / pathlib.Path(mutant["source"]).name
            source.write_text(text[:mutant["at"]] + mutant["new"] + text[mutant["end"]:])
            entry = self.compile[mutant["source"]]
            words = shlex.split(entry["command"])
            words[words.index("-o") + 1] = f"{folder}/mutant.o"
            words[words.index("-c") + 1] = str(source)
            if "-MF" in words:
                words[words.index("-MF") + 1] = f"{folder}/mutant.d"
            words += ["-w", "-I", str(pathlib.Path(mutant["source"]).parent.resolve())]
            if subprocess.run(words, cwd=entry["directory"], capture_output=True).returncode:
                return "the compiler"
            for test in mutant["tests"]:
                command = re.sub(r" -o (\S+)", f" -o {folder}/{test} {folder}/mutant.o", self.link[test], count=1)
                subprocess.run(command, shell=True, cwd=BUILD, check=True, capture_output=True)
                arguments = [f"{folder}/{test}"]
                if test.startswith("fuzz_"):
                    arguments.append(os.path.abspath(f"tests/fuzz/corpus/{test[5:].removesuffix('_replay')}"))
                try:
                    if subprocess.run(arguments, capture_output=True, timeout=SECONDS, cwd=folder).returncode:
                        return test
                except subprocess.TimeoutExpired:
                    return test
        return None


def main():
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")] or list(SOURCES)
    known = set()
    if EQUIVALENT.exists():
        known = {line.split("  #")[0].strip() for line in EQUIVALENT.read_text().splitlines()}
    texts, mutants = {}, []
    for source in chosen:
        if source not in SOURCES:
            continue
        texts[source], found = mutants_of(source, SOURCES[source][0])
        mutants += [mutant for mutant in found if identity(mutant) not in known]
    total = len(mutants)
    if "--all" not in options:
        mutants = sample(mutants, int(os.environ.get("ATTNGEN_MUTANTS", "300")))
    by_hand = [mutant for mutant in mutants_by_hand(texts) if mutant["source"] in chosen or chosen == list(SOURCES)]
    total += len(by_hand)
    mutants += by_hand
    if "--list" in options:
        print("\n".join(identity(mutant) for mutant in mutants))
        return 0
    bench = Bench()
    bench.prepare({test for mutant in mutants for test in mutant["tests"]})
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda mutant: bench.is_noticed(mutant, texts[mutant["source"]]), mutants)
        for mutant, noticed in zip(mutants, outcomes):
            if noticed is None:
                survivors.append(mutant)
                print(f"survives: {mutant['source']}:{mutant['line']}: {identity(mutant).split(': ', 1)[1]}", flush=True)
    score = 1 - len(survivors) / len(mutants) if mutants else 1
    print(f"mutate: {len(mutants)} of {total} mutants, {len(survivors)} survive: {100 * score:.1f} % are noticed, "
          f"the bar is {100 * BAR:.0f} %")
    return 0 if score >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
