"""The limit that users set for the memory that a product may take besides its operands and its result."""

from __future__ import annotations

from mm32 import prepared, settings


def workspace_limit() -> int | None:
    """The most bytes of device memory that one product may take as its workspace; None for no limit.

    It is 2 GiB, or what the environment variable MM32_WORKSPACE_LIMIT or `set_workspace_limit` says. Raises ValueError if the
    variable's value cannot be read.
    """
    return settings.read_limit()


def set_workspace_limit(limit: int | str | None) -> None:
    """Set the most bytes of device memory that one product may take as its workspace, in the whole process, from the next call.

    The kernels "tensorcore" and "mma" pack their operands into a workspace, 4 to 6 bytes for each element. A product that would
    need more than the limit is computed in blocks of rows, columns and K, one after another in the same workspace. Sums of the
    blocks of K are added in fp32, and the same error bound holds (docs/numerics.md). ``explain`` shows the blocks. With a smaller
    limit products take longer, because operands are packed more than once. A kernel that has no blocks within the limit is not
    chosen, and "simt" splits K among fewer blocks.

    The limit does not hold for products with an operand that was packed before, because it was packed whole, nor for what `pack`
    makes, nor for exported files. CUDA graphs keep the workspace that they were captured with.

    Args:
        limit: a number of bytes, a text such as "512MiB" or "1.5 GiB", or None (or "none") for no limit.

    Raises ValueError for anything else.

    Example:
        >>> mm32.set_workspace_limit("512MiB")
        >>> mm32.workspace_limit()
        536870912
        >>> mm32.set_workspace_limit("2 GiB")
    """
    settings.store_limit(limit)
    prepared.CACHE.clear()  # plans that were made with another limit
