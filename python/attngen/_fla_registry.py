# SPDX-License-Identifier: MIT
"""How backends are registered with FLA: in 0.6 by function or operation, in 0.5.2 by operation alone."""

__all__ = ["BaseBackend", "of_function", "register"]

# Of positional arguments that 0.6 has others among; calls with more are declined.
_ALIKE = {"chunk_kda_fwd_intra": 10, "chunk_gated_delta_rule": 14}

try:
    from fla.backends import BaseBackend, register

    of_function = True  # functions have registries of their own
except ImportError:
    from fla.ops.backends import BackendRegistry
    from fla.ops.backends import BaseBackend as _BaseBackend

    of_function = False

    class BaseBackend(_BaseBackend):
        """A backend whose functions have the arguments of 0.6."""

        def verify(self, function, *args, **kwargs):
            if not hasattr(self, function):
                return False, f"attngen does not serve {function}"
            if len(args) > _ALIKE.get(function, len(args)):
                return False, f"attngen takes {_ALIKE[function]} positional arguments of {function}, got {len(args)}"
            return super().verify(function, *args, **kwargs)

    def register(operation):
        """Registers a backend for the functions of an operation, beside FLA's own."""

        def add(backend):
            BackendRegistry.ensure_initialized(operation)
            registry = BackendRegistry._registries.get(operation) or BackendRegistry(operation)
            registry.register(backend())
            return backend

        return add
