"""ONNX Runtime sessions and the bounded pool that runs them.

One sequence a call: dynamic quantisation takes its scale from the whole batch, so a vector or a
score from a batch would depend on its neighbours, and padding would be computed for nothing.
Processors are used by running calls side by side: `run` releases the interpreter lock and a
session may be shared by threads. No thread spins while it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime

from clumsies.errors import ModelFailed, NotReady

_T = TypeVar("_T")
_R = TypeVar("_R")

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


class ModelSession:
    """One loaded graph with inputs `input_ids`, `attention_mask` and, where it has it,
    `token_type_ids`, each int64 of shape (1, length)."""

    def __init__(self, path: Path, output: str | None = None):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises classes it does not export
            raise ModelFailed(
                "search_model_invalid",
                f"ONNX Runtime cannot load {path.name} ({type(error).__name__}); "
                "run `clumsies models verify`.",
            ) from error
        self._inputs = frozenset(item.name for item in self._session.get_inputs())
        outputs = [item.name for item in self._session.get_outputs()]
        self._output = output if output in outputs else outputs[0]

    def run(self, ids: Sequence[int], type_ids: Sequence[int]) -> FloatArray:
        """The graph's output for one sequence, with its leading axis of 1 removed."""
        feeds: dict[str, IntArray] = {"input_ids": np.asarray([ids], dtype=np.int64)}
        if "attention_mask" in self._inputs:
            feeds["attention_mask"] = np.ones((1, len(ids)), dtype=np.int64)
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.asarray([type_ids], dtype=np.int64)
        try:
            output = self._session.run([self._output], feeds)[0]
        except Exception as error:  # see above
            raise ModelFailed(
                "search_model_invalid",
                f"ONNX Runtime failed on a sequence of {len(ids)} tokens "
                f"({type(error).__name__}); run `clumsies models verify`.",
            ) from error
        result: FloatArray = np.asarray(output, dtype=np.float32)[0]
        return result


class WorkerPool:
    """A fixed number of threads for model calls, shared by the queries of one process."""

    def __init__(self, threads: int):
        if threads < 1:
            raise ValueError("a pool needs at least one thread")
        self.threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="clumsies-model")
        self._closed = threading.Event()

    def submit(self, work: Callable[[], _R]) -> Future[_R]:
        """Start `work` on a pool thread."""
        return self._executor.submit(work)

    def map(
        self,
        work: Callable[[_T], _R],
        items: Sequence[_T],
        *,
        cost: Callable[[_T], int],
        timeout_s: float | None = None,
    ) -> list[_R]:
        """`work` of every item, in the order of `items`.

        The dearest item (by `cost`) starts first, so that no long one is left alone at the end.
        Raises NotReady("activation_deadline") after `timeout_s`; calls not yet begun are dropped.
        """
        order = sorted(range(len(items)), key=lambda i: -cost(items[i]))
        futures = {i: self._executor.submit(work, items[i]) for i in order}
        done, pending = wait(futures.values(), timeout_s, return_when=FIRST_EXCEPTION)
        failed = next((future for future in done if future.exception()), None)
        if failed is not None or pending:
            for future in pending:
                future.cancel()
        if failed is not None:
            failed.result()
        if pending:
            raise NotReady(
                "activation_deadline",
                "The models did not finish within the activation's deadline; "
                "send the same query again, or lower the machine's load.",
            )
        return [futures[i].result() for i in range(len(items))]

    def stream(
        self, work: Callable[[_T], _R], items: Sequence[_T], *, cost: Callable[[_T], int]
    ) -> Iterator[tuple[int, _R]]:
        """(position, result) pairs as they are made, at most a few calls ahead of the reader."""
        order = iter(sorted(range(len(items)), key=lambda i: -cost(items[i])))
        waiting: dict[Future[_R], int] = {}
        try:
            while True:
                while len(waiting) < 4 * self.threads:
                    position = next(order, None)
                    if position is None:
                        break
                    waiting[self._executor.submit(work, items[position])] = position
                if not waiting:
                    return
                done, _ = wait(waiting, return_when="FIRST_COMPLETED")
                for future in done:
                    yield waiting.pop(future), future.result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        self._executor.shutdown(wait=True, cancel_futures=True)
