# SPDX-License-Identifier: MIT
"""Products, and what would be chosen of them."""

import dataclasses
import json

from . import _ffi, families

# Values of problems' fields that have names.
_VALUES = {
    "bf16": 0, "bfloat16": 0, "fp16": 1, "float16": 1, "fp32": 2, "float32": 2, "e4m3": 4, "float8_e4m3fn": 4,
    "e5m2": 5, "float8_e5m2": 5, "vk": 0, "kv": 1, "int32": 0, "int64": 1,
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What select() returns: the variants of the launches, the time predicted for them, and why they were chosen."""

    why: str
    predicted_us: float
    workspace_bytes: int
    launches: tuple

    @property
    def variant(self):
        """The variant of the last launch, which the choice is about; None on the CPU."""
        return self.launches[-1]["variant"] if self.launches else None


def _value(field, value):
    if field == "cache" and isinstance(value, str):
        return {"same": 0, "e4m3": 1}[value]
    if isinstance(value, str):
        if value not in _VALUES:
            raise ValueError(f"{field} is '{value}'; allowed: a number, or one of {', '.join(_VALUES)}")
        return _VALUES[value]
    return value


def _tell(mode, family, args, device, library, flags, fields):
    if family not in families.ALL:
        raise ValueError(f"'{family}' is no family; allowed: {', '.join(families.ALL)}")
    if args:
        return families.ALL[family](*args, library=library, flags=flags | mode, workspace=device, **fields)
    pairs = [x for field, value in fields.items() for x in (field, _value(field, value))]
    handle = 0 if library is None else library.handle
    return _ffi.function("problem")(handle, flags | mode, device, family, *pairs)


def explain(family, *args, device=None, library=None, flags=0, **fields):
    """Says what is chosen for a problem and why: every candidate with its time, and why others are not.

    Either with a family's own arguments, as it would be called, or with the fields of its problem
    struct by name: ``explain("la_decode", device="h200", batch=64, num_qk_heads=64, num_v_heads=64,
    head_dim=128, dtype="bf16", layout="kv")``. Fields that are left out are 0.

    device: a name ("h200", "h20", "sm_90:78", "cpu"); None: that of the tensors, else the CPU.
    Raises ValueError for a family, a field or a device that does not exist.
    """
    return _tell(_ffi.EXPLAIN, family, args, device, library, flags, fields)


def select(family, *args, device=None, library=None, flags=0, **fields):
    """Picks a variant without launching it, and needs no GPU; arguments as explain()'s. Returns a Plan.

    Raises ValueError also where no variant of the product fits.
    """
    plan = json.loads(_tell(_ffi.SELECT, family, args, device, library, flags, fields))
    return Plan(plan["why"], plan["predicted_us"], plan["workspace_bytes"], tuple(plan["launches"]))


class Library:
    """A product other than the package's own; its methods are the families, explain() and select().

    path: of attngen.fatbin; None: the default product, which is $ATTNGEN_PRODUCT_PATH (files and folders of
    *.fatbin, with colons between them), else the package's. more: further files that are opened as one with it.
    It stays open to the end of the process. Raises RuntimeError where a file is no product.
    """

    def __init__(self, path=None, *more):
        if path is None and more:
            raise ValueError("path is None, and more paths are given; allowed: a path, and more behind it")
        self.handle = _ffi.function("open")("" if path is None else str(path), *map(str, more))

    @property
    def info(self):
        """Version, toolkit, numbers of variants and of rows of tuning tables, and the digest."""
        return json.loads(_ffi.function("library_info")(self.handle))

    def explain(self, family, *args, **fields):
        return explain(family, *args, library=self, **fields)

    def select(self, family, *args, **fields):
        return select(family, *args, library=self, **fields)

    def __getattr__(self, name):
        if name not in families.ALL:
            raise AttributeError(f"attngen.Library has no '{name}'")
        family = families.ALL[name]

        def bound(*args, **kwargs):
            return family(*args, library=self, **kwargs)

        bound.__name__, bound.__doc__ = name, family.__doc__
        return bound
