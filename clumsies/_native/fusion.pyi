import numpy as np
import numpy.typing as npt

KERNEL_VERSION: int

def fuse_into(
    ids: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    rrf_k: float,
    out_ids: npt.NDArray[np.int64],
    out_scores: npt.NDArray[np.float64],
) -> int: ...
def fuse_batch_into(
    rankings: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    rrf_k: float,
    out_ids: npt.NDArray[np.int64],
    out_scores: npt.NDArray[np.float64],
    out_counts: npt.NDArray[np.int64],
) -> None: ...
