# The extension module: flat.h, and the functions of src/native, whose comments say what they take.
# Private. A handle is a capsule, or None for one that is closed.
from collections.abc import Callable
from typing import Any

SYMM_VERSION_MAJOR: int
SYMM_VERSION_MINOR: int
SYMM_VERSION_PATCH: int
SYMM_OK: int
SYMM_INVALID_ARGUMENT: int
SYMM_OUT_OF_MEMORY: int
SYMM_UNSUPPORTED: int
SYMM_SYSTEM: int
SYMM_CUDA: int
SYMM_NCCL: int
SYMM_TIMEOUT: int
SYMM_PEER: int
SYMM_MISMATCH: int
SYMM_ABORTED: int
SYMM_INTERNAL: int
SYMM_DTYPE_NONE: int
SYMM_INT8: int
SYMM_UINT8: int
SYMM_INT32: int
SYMM_UINT32: int
SYMM_INT64: int
SYMM_UINT64: int
SYMM_FLOAT16: int
SYMM_FLOAT32: int
SYMM_FLOAT64: int
SYMM_BFLOAT16: int
SYMM_FLOAT8_E4M3: int
SYMM_FLOAT8_E5M2: int
SYMM_OP_NONE: int
SYMM_SUM: int
SYMM_PROD: int
SYMM_MAX: int
SYMM_MIN: int
SYMM_AVG: int
SYMM_CPU: int
SYMM_LOCAL_GPU: int
SYMM_CURRENT_GPU: int
SYMM_FROM_ADDRESS: int
SYMM_NO_COLOR: int
SYMM_COMM_SHARE_GPU: int
SYMM_COMM_NCCL: int
SYMM_COMM_STRICT: int
SYMM_COMM_SOLE: int
SYMM_WINDOW_NCCL: int
SYMM_WINDOW_FD: int

_Look = tuple[int, tuple[int, ...], int, int, bool, bool]

def symm_version() -> int: ...
def symm_status_name(status: int) -> str: ...
def process_report() -> str: ...
def flat_report(comm: Any) -> str: ...
def flat_plan(comm: Any, window_or_null: Any, count: int, dtype: int, op: int) -> str: ...
def flat_address_create(host: str | None) -> str: ...
def flat_comm_create(
    address: str,
    rank: int,
    size: int,
    device: int,
    name: str | None,
    nccl_path: str | None,
    scratch_bytes: int,
    timeout_ms: int,
    wait_timeout_ms: int,
    flags: int,
) -> Any: ...
def flat_comm_split(
    comm: Any,
    color: int,
    key: int,
    name: str | None,
    nccl_path: str | None,
    scratch_bytes: int,
    timeout_ms: int,
    wait_timeout_ms: int,
    flags: int,
) -> Any: ...
def flat_comm_rank(comm: Any) -> int: ...
def flat_comm_size(comm: Any) -> int: ...
def flat_comm_device(comm: Any) -> int: ...
def flat_comm_barrier(comm: Any, stream: int) -> None: ...
def flat_comm_failed_rank(comm: Any) -> int: ...
def flat_comm_check(comm: Any) -> None: ...
def flat_comm_nccl(comm: Any) -> int: ...
def symm_comm_abort(comm: Any) -> None: ...
def flat_window_alloc(comm: Any, bytes: int, flags: int) -> Any: ...
def flat_window_register(
    comm: Any, address: int, bytes: int, flags: int, fd: int, fd_offset: int
) -> Any: ...
def flat_window_data(window: Any, rank: int) -> int: ...
def set_hooks(
    error: Callable[..., BaseException],
    look: Callable[..., tuple[Any, ...]],
    empty_like: Callable[[Any], tuple[Any, Any]],
    stream: Callable[..., int],
) -> None: ...
def look(object: Any, function: str, name: str) -> _Look: ...
def dlpack_export(
    owner: Any, address: int, shape: tuple[int, ...], dtype: int, device: int, versioned: bool
) -> Any: ...
def dlpack_look(capsule: Any) -> _Look | None: ...
def all_reduce(comm: Any, x: Any, out: Any, op: Any, stream: Any) -> Any: ...
def window_all_reduce(
    window: Any,
    comm: Any,
    rank: int,
    dtype: int,
    offset: int,
    count: int,
    out: Any,
    op: Any,
    stream: Any,
) -> Any: ...
