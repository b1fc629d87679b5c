"""lfopt completion: what a shell needs to complete commands and options."""

from __future__ import annotations

from typing import Literal

from lfopt.app.screen import write


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion of commands, options and their values for a shell.

    Example: lfopt completion bash > ~/.local/share/bash-completion/completions/lfopt

    Parameters
    ----------
    shell
        For zsh, a file _lfopt in a folder of $fpath; for fish, ~/.config/fish/completions/lfopt.fish.
    """
    from lfopt.app.command_line import app  # noqa: PLC0415  (the application imports its commands when they run)

    write(app.generate_completion(shell=shell) + "\n")
