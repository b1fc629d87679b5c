"""The `lfopt` program: its streams and its signals are in order before anything of size is imported."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

INTERRUPTED = 130  # exit code
STDERR = 2  # descriptor
IMPORTS = "<frozen importlib._bootstrap>"  # file of the frames of an import


def main() -> None:
    """Run the command line and end the process with its exit code.

    A reader of the output may leave early. What cannot be written to the standard output otherwise is one
    line, and exit code 2.
    """
    began = time.perf_counter()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not one that is ignored
        signal.signal(signal.SIGINT, _interrupted)
        sys.unraisablehook = _unraisable
    from lfopt.app import standard  # noqa: PLC0415  (signals come first)

    standard.open_streams()
    from lfopt.app.command_line import run  # noqa: PLC0415

    status = run(sys.argv[1:], began)
    sys.stdout.flush()
    if lost := standard.lost_output():
        sys.stderr.write(f"lfopt: standard output: cannot be written: {lost}\n")
        status = status or 2
    if standard.judge_is_at_work():
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _interrupted(_: int, frame: FrameType | None) -> None:
    """Ctrl-C: commands end in good order, and within an import, which cannot, the process ends at once."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORTS:
            os.write(STDERR, b"lfopt: interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Ctrl-C where nothing can be raised, as in a callback of the garbage collector, comes again."""
    if lost.exc_type is KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
