"""Types of JAX's compiled module, whose wheel has none: what the library and JAX's own signatures
name of it. Written from the classes as they are at run time (jaxlib 0.10.1)."""

from collections.abc import Sequence

from jaxlib._jax import pytree as pytree

class Sharding: ...
class NamedSharding(Sharding): ...
class JaxRuntimeError(RuntimeError): ...

class ExecutableArray:
    def __array__(self) -> object: ...

class LoadedExecutable:
    def execute(self, arguments: Sequence[object], /) -> list[ExecutableArray]: ...

class Client:
    platform: str
    platform_version: str
    def serialize_executable(self, executable: LoadedExecutable, /) -> bytes: ...
    def deserialize_executable(
        self, serialized: bytes, devices: Sequence[Device], /
    ) -> LoadedExecutable: ...

class Device:
    id: int
    platform: str
    process_index: int
    device_kind: str
    client: Client
    def memory_stats(self) -> dict[str, int] | None: ...
