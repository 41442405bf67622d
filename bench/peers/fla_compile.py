"""Compiles FLA's Triton kernels in parallel, and packs of Triton's cache what a later run needs.

A script that is a peer has keys (what its kernels are specialized by: a small problem for each) and warm(torch, key), which
runs a key's functions once. compile_all() starts workers, each of which runs all keys and of every kernel compiles the
configurations that fall to it; nothing else is launched, so what the functions return means nothing there. FLA's autotuning
then finds all of a key's configurations in Triton's cache, and leaves there what it has timed.

    keep_used()     notes which kernels are launched from here on, those that are only timed left out
    pack(file, ..)  $TRITON_CACHE_DIR as a tar file: machine code of those kernels, all timings, launchers
    restore(file)   the other way round: into the folder that it was packed from, for Triton's files name it
"""
import json
import os
import subprocess
import sys
import tarfile
import time

WARMED, PART = "warmed.json", "ATTNGEN_FLA_PART"
_used = set()


def cache_folder():
    return os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".triton", "cache")


def warmed():
    """Keys whose timings are in the cache."""
    try:
        with open(os.path.join(cache_folder(), WARMED)) as lines:
            return {tuple(key) for key in json.load(lines)}
    except FileNotFoundError:
        return set()


# ---- workers ------------------------------------------------------------------------------------------------------------


class OutOfTime(Exception):
    pass


def _take_part(part, parts, until):
    """Kernels compile the configurations that fall to this worker, and are launched with no other."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources, PTXASError

    count = [part]

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        for config in self.prune_configs(kwargs):
            count[0] += 1
            if count[0] % parts:
                continue
            if time.time() > until:
                raise OutOfTime
            try:
                self.fn.run(*args, **kwargs, **config.all_kwargs())
            except (OutOfResources, CompileTimeAssertionFailure, PTXASError):
                pass  # the tuner passes over it, too
            except Exception as error:  # the tuner will say it again, where it counts
                print(f"{self.base_fn.__name__}, {config}: {error}", file=sys.stderr)
        self.nargs = None

    Autotuner.run = run


def work(torch, keys, warm):
    """In a worker: compiles its part of all keys, and says which are done."""
    part, parts, until = (float(word) for word in os.environ[PART].split(","))
    _take_part(int(part), int(parts), until)
    for key in keys:
        try:
            warm(torch, key)
            torch.cuda.synchronize()
        except OutOfTime:
            return
        print(json.dumps(key), flush=True)


def is_worker():
    return PART in os.environ


def compile_all(keys, jobs, seconds):
    """Starts this script again, `jobs` times, with the same arguments. Returns the keys whose kernels are all there."""
    until, workers = time.time() + seconds, []
    for part in range(jobs):
        environment = dict(os.environ, **{PART: f"{part},{jobs},{until}"}, FLA_CACHE_RESULTS="0")  # it times nothing
        workers.append(subprocess.Popen([sys.executable] + sys.argv, env=environment, stdout=subprocess.PIPE, text=True))
    done = dict.fromkeys(keys, 0)
    for worker in workers:
        for line in worker.communicate()[0].splitlines():
            key = tuple(json.loads(line)) if line.startswith("[") else None
            if key in done:
                done[key] += 1
    return {key for key, count in done.items() if count == jobs}


# ---- what a later run needs ---------------------------------------------------------------------------------------------


def keep_used():
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    timing = [0]
    bench, run = Autotuner._bench, JITFunction.run

    def timed(self, *args, **kwargs):
        timing[0] += 1
        try:
            return bench(self, *args, **kwargs)
        finally:
            timing[0] -= 1

    def launched(self, *args, **kwargs):
        kernel = run(self, *args, **kwargs)
        if not timing[0] and hasattr(kernel, "metadata_group"):
            _used.update(os.path.dirname(path) for path in kernel.metadata_group.values())
        return kernel

    Autotuner._bench, JITFunction.run = timed, launched


def _needed(folder, name):
    used = folder in _used and name.endswith((".cubin", ".json"))
    return used or name.endswith((".autotune.json", ".so"))


def pack(path, keys):
    """Packs the cache; `keys`: those that ran in this process."""
    top = cache_folder()
    keys = sorted(warmed() | set(keys))
    with open(os.path.join(top, WARMED), "w") as out:
        json.dump(keys, out)
    with tarfile.open(path + ".part", "w:gz", compresslevel=6) as out:
        out.add(os.path.join(top, WARMED), WARMED)
        for folder, _, names in sorted(os.walk(top)):
            for name in sorted(names):
                if _needed(folder, name):
                    whole = os.path.join(folder, name)
                    out.add(whole, os.path.relpath(whole, top))
    os.replace(path + ".part", path)
    print(f"packed {len(_used)} kernels, {os.path.getsize(path)} bytes: {path}", file=sys.stderr)


def restore(path):
    top = cache_folder()
    os.makedirs(top, exist_ok=True)
    with tarfile.open(path) as packed:
        packed.extractall(top, filter="data")
