"""Run one function on many jobs: in this process, in several of this machine, or on a Dask cluster.

Each result comes back as soon as it is there. A job that raises is a `JobFailure`, in one line. A worker that
dies costs the jobs that it had: they run again, and one that takes its process down when it runs alone is a
`JobFailure` too. What came back before a worker, or the whole cluster, was lost is not computed again.
"""

from __future__ import annotations

import logging
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from lfopt.ir import InvalidConfig, LfoptError
from lfopt.ir.names import one_line

CONNECT_SECONDS = 10
SENT_AHEAD = 1000  # jobs that a cluster has at a time: enough for one that grows with its work
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # of libraries in each process

P = ParamSpec("P")
T = TypeVar("T")
Job = TypeVar("Job")
Value = TypeVar("Value")


class WorkersLost(LfoptError):
    """The cluster is gone; what came back before is there."""


@dataclass(frozen=True)
class JobFailure:
    """What a job gave instead of a value."""

    message: str  # one line
    trace: str = ""  # of what is not wrong input: how Python came there

    @classmethod
    def of(cls, error: BaseException) -> JobFailure:
        """The failure of what was raised; wrong input needs no trace."""
        if isinstance(error, LfoptError):
            return cls(one_line(error))
        return cls(one_line(f"{type(error).__name__}: {error}"), "".join(traceback.format_exception(error)))


@dataclass(frozen=True)
class Workers:
    """Processes that run jobs."""

    start: Callable[[], AbstractContextManager[Executor]]
    window: int  # jobs that are out at a time: enough that no worker waits


def processes(count: int, who: str, extra: str) -> Workers:
    """Processes of this machine; 1 is this one.

    Raises InvalidConfig, which names the extra, where `who` needs joblib and it is not there.
    """
    if count == 1:
        return Workers(partial(nullcontext, _Here()), 1)
    return Workers(partial(_pool, needed("joblib", who, extra), count), 2 * count)


def cluster(address: str, who: str, extra: str) -> Workers:
    """The workers of a Dask scheduler at an address such as tcp://10.0.0.1:8786.

    Raises InvalidConfig as `processes` does; when they start, also where nobody answers there, and where they
    have no lfopt.
    """
    return Workers(partial(_client, needed("distributed", who, extra), address), SENT_AHEAD)


def needed(module: str, who: str, extra: str) -> Any:
    """A module of an extra. Raises InvalidConfig."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidConfig(f"{who} needs {module} ({error}): pip install 'lfopt[{extra}]'") from None


def run(
    function: Callable[[Job], Value], jobs: Sequence[Job], workers: Workers
) -> Iterator[tuple[int, Value | JobFailure]]:
    """(position, what the job gave) of each job, in the order in which they are done. Raises WorkersLost."""
    left = deque(range(len(jobs)))
    while left:
        lost = yield from _until_broken(function, jobs, left, workers.start, workers.window)
        suspects = deque(k for k, _ in lost)
        while suspects:  # one at a time: which of them took the process down?
            for k, why in (yield from _until_broken(function, jobs, suspects, workers.start, 1)):
                yield (
                    k,
                    JobFailure(
                        one_line(
                            "its process died twice, the second time with no other job beside it (out of "
                            f"memory?): {why}"
                        )
                    ),
                )


def values(
    function: Callable[[Job], Value], jobs: Sequence[Job], workers: Workers
) -> Iterator[tuple[int, Value]]:
    """(position, result) of each job, as `run` gives them, for jobs of which none may fail.

    Raises InvalidConfig where one fails for wrong input, RuntimeError where one fails otherwise.
    """
    for k, outcome in run(function, jobs, workers):
        if isinstance(outcome, JobFailure):
            raise RuntimeError(outcome.trace) if outcome.trace else InvalidConfig(outcome.message)
        yield k, outcome


def in_order(numbered: Iterable[tuple[int, Value]]) -> Iterator[Value]:
    """What jobs gave, in the order of the jobs, each as soon as all before it are there.

    >>> list(in_order([(1, "b"), (0, "a"), (2, "c")]))
    ['a', 'b', 'c']
    """
    early: dict[int, Value] = {}
    due = 0
    for k, value in numbered:
        early[k] = value
        while due in early:
            yield early.pop(due)
            due += 1


def _until_broken(
    function: Callable[[Job], Value],
    jobs: Sequence[Job],
    left: deque[int],
    start: Callable[[], AbstractContextManager[Executor]],
    window: int,
) -> Generator[tuple[int, Value | JobFailure], None, list[tuple[int, str]]]:
    """Run what is left until all is done or a process dies; returns (position, why) of the jobs out then.

    Raises WorkersLost where the cluster is gone.
    """
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    out: dict[Future[Any], int] = {}
    lost: list[tuple[int, str]] = []

    def give_out() -> None:
        while left and not lost and len(out) < window:
            k = left.popleft()
            try:
                future = executor.submit(attempt, function, jobs[k])
            except BrokenExecutor as error:
                lost.append((k, str(error)))
                return
            out[future] = k
            future.add_done_callback(done.put)

    def taken() -> tuple[int, Any]:
        """The next result.

        No reference to its future stays: a cluster that still owed it would compute it again when its worker
        is lost.
        """
        future = done.get()
        return out.pop(future), _outcome(future)

    with start() as executor:
        give_out()
        while out:
            k, outcome = taken()
            if isinstance(outcome, BrokenExecutor):
                lost.append((k, str(outcome)))
            elif isinstance(outcome, CancelledError):
                raise WorkersLost("the cluster is gone")
            else:
                yield k, outcome
            give_out()
    return lost


def attempt(function: Callable[[Job], Value], job: Job) -> Value | JobFailure:
    """What a job gives, or why it gives nothing; called in a worker.

    Exceptions stay there: not every one can be sent.
    """
    try:
        return function(job)
    except Exception as error:  # whatever it is
        return JobFailure.of(error)


def _outcome(future: Future[Any]) -> Any:
    """What a job gave; BrokenExecutor where its worker died, CancelledError where the cluster is gone."""
    try:
        return future.result()
    except (BrokenExecutor, CancelledError) as gone:
        return gone
    except Exception as error:
        # of a job or a result that cannot be sent, or whose workers died again and again
        return JobFailure.of(error)


class _Shielded(Executor):
    """Processes that start with Ctrl-C blocked: within their imports it would be a traceback each."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A job for the pool, which starts processes here where some are missing."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self.pool.submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Here(Executor):
    """The process itself: a job is done when it has been given out."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def _pool(joblib: Any, count: int) -> Iterator[Executor]:
    """joblib's processes.

    Not `joblib.Parallel`: where a process dies, it drops what others have finished and nobody has fetched
    yet.
    """
    share = str(max(joblib.cpu_count() // count, 1))
    environment = {name: os.environ.get(name, share) for name in THREADS}
    pool = joblib.externals.loky.ProcessPoolExecutor(count, initializer=_ignore_interrupts, env=environment)
    try:
        yield _Shielded(pool)
    finally:
        pool.shutdown(kill_workers=True)  # jobs are out only where the run ends early


def _ignore_interrupts() -> None:
    """Ctrl-C is for the process that started this one: it ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _client(distributed: Any, address: str) -> Iterator[Executor]:
    log = logging.getLogger("distributed")
    level = log.level
    log.setLevel(logging.CRITICAL)  # a cluster that is lost is reported once, as WorkersLost
    try:
        try:
            client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidConfig(
                one_line(f"--cluster {address}: no scheduler of Dask answers: {error}")
            ) from None
        try:
            executor = client.get_executor(pure=False)
            _check(executor, address)
            yield executor
        finally:
            client.close()
    finally:
        log.setLevel(level)


def _check(executor: Executor, address: str) -> None:
    """Check the first worker. Raises InvalidConfig where it cannot import what it is to run; WorkersLost."""
    try:
        executor.submit(attempt, len, ()).result()
    except CancelledError:
        raise WorkersLost("the cluster is gone") from None
    except Exception as error:
        raise InvalidConfig(
            one_line(f"--cluster {address}: its workers cannot run lfopt: {type(error).__name__}: {error}")
        ) from None
