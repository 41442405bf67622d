# SPDX-License-Identifier: MIT
"""`python -m attngen`: the command `attngen` of the package."""

import glob
import os
import pathlib
import sys

# Commands that are programs of their own and need no compiler's library.
_PROGRAMS = ("tune", "verify", "bench", "select")


def main():
    here = pathlib.Path(__file__).resolve().parent
    arguments = sys.argv[1:]
    program = here / "bin" / "attngen"
    environment = dict(os.environ)
    if arguments and arguments[0] in _PROGRAMS and (here / "libexec" / "attngen" / f"attngen-{arguments[0]}").exists():
        program = here / "libexec" / "attngen" / f"attngen-{arguments.pop(0)}"
    else:
        # The wheels of NVIDIA's compiler lie beside this package.
        folders = glob.glob(str(here.parent / "nvidia" / "*" / "lib"))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    if not program.exists():
        sys.exit(f"attngen: this package was built without the command ({program} does not exist)")
    os.execve(program, [str(program), *arguments], environment)


if __name__ == "__main__":
    main()
