"""Several batches at once on the cores of one CPU.

A decoder of a small model is made of many short operations. Split over all cores, each ends in a barrier, and what is
too small to split leaves all cores but one idle. So every core (or group of cores) gets batches of its own instead.
Measured by ``bench/evaluate.py``, see ``bench/RESULTS.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_STREAMS = 8  # each holds a batch's activations, and reads all weights


def in_streams(work: Callable[[Item], Result], items: Iterable[Item], place: torch.device) -> Iterator[Result]:
    """``work`` of every item, in order; on a CPU several at once, with torch's threads shared out among them.

    An error is raised when its item's turn comes, and nothing is begun after it. A caller that stops early waits for
    the items under way. Elsewhere than on a CPU, or with one thread, this is ``map``.
    """
    threads = torch.get_num_threads()
    streams = min(threads, MAX_STREAMS)
    if place.type != "cpu" or streams == 1:
        yield from map(work, items)
        return
    waiting = iter(items)
    # Torch's modes and its number of threads belong to a thread; a new one takes the number that was set last.
    pool = ThreadPoolExecutor(streams, "genaccel-stream", torch.set_num_threads, (threads // streams,))
    try:
        # One more than there are streams: none waits while the caller writes a result down.
        begun: deque[Future[Result]] = deque(pool.submit(work, item) for item in islice(waiting, streams + 1))
        while begun:
            result = begun.popleft().result()
            begun.extend(pool.submit(work, item) for item in islice(waiting, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
