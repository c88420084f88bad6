"""The one module that starts programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import Any

from common.errors import ProcessError, UnavailableError

TAIL_LINES = 15
CHUNK = 1 << 20
ENDS_S = 5.0
"""So long a program that is ended may take to be gone."""


def require(program: str, package: str, otherwise: str = "") -> str:
    """Return the path of `program`.

    Raises UnavailableError that names the Debian package where it is missing, and what else helps `otherwise`.
    """
    # /usr/sbin is not on the search path of every account, and debootstrap lies there
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        raise UnavailableError(
            f"the program {program} is not installed",
            where=program,
            hint=", ".join(filter(None, (f"install the Debian package {package}", otherwise))),
        )
    return found


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    hint: str = "",
    accepted: Collection[int] = (0,),
    timeout_s: float | None = None,
    most_bytes: int = 0,
) -> str:
    """Run a program to its end and return its standard output, with marks where that is no text.

    Raises ProcessError with the end of what it said where it ends with a code that is not `accepted`, and where it is
    ended because it has not ended after `timeout_s`, or because it says more than `most_bytes` (0: any number);
    that cannot be had together with `cwd` or codes that are `accepted`.
    """
    words = [str(word) for word in command]
    if shutil.which(words[0], path=env.get("PATH") if env else None) is None:
        raise UnavailableError(f"there is no program {words[0]}", where=words[0], hint=hint)
    try:
        if most_bytes:
            return _run_bounded(words, most_bytes, stdin, hint=hint, timeout_s=timeout_s, env=env)
        done = _ended(
            _tied(words),
            stdin,
            timeout_s,
            env=env,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise UnavailableError(f"cannot start {words[0]}: {error.strerror}", where=words[0], hint=hint) from error
    except subprocess.TimeoutExpired as error:
        # which programs that try again and again tell first
        said = bytes(error.stderr or b"").decode(errors="replace").strip()
        why = f"{Path(words[0]).name} has not ended after {timeout_s:g} s"
        raise ProcessError(_with_tail(why, said) if said else why, where=words[0], hint=hint) from error
    if done.returncode not in accepted:
        raise failure(words, done.returncode, done.stderr.strip() or done.stdout.strip(), hint)
    text: str = done.stdout
    return text


def _ended(words: list[str], stdin: str | bytes, timeout_s: float | None, **how: Any) -> CompletedProcess[Any]:
    """Run a program to its end; raises subprocess.TimeoutExpired, for one, too, that a kernel does not let go.

    `subprocess.run` waits on for that one: with a file system whose server is gone, for ever.
    """
    process = subprocess.Popen(words, stdin=subprocess.PIPE, **how)
    try:
        said, wrong = process.communicate(stdin, timeout_s)
    except BaseException:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
        raise
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()
    return CompletedProcess(words, process.returncode, said, wrong)


def _run_bounded(
    words: list[str], most_bytes: int, stdin: str, *, hint: str, timeout_s: float | None, env: Mapping[str, str] | None
) -> str:
    """Run a program whose output goes into a file that cannot grow beyond a size: whoever goes on to write is ended."""
    bounded = [require("prlimit", "util-linux"), f"--fsize={most_bytes}", "--", *words]
    with TemporaryFile() as said:
        done = _ended(_tied(bounded), stdin.encode(), timeout_s, env=env, stdout=said, stderr=subprocess.STDOUT)
        said.seek(0)
        text = said.read(most_bytes).decode(errors="replace")
    if done.returncode != 0:
        raise failure(words, done.returncode, text.strip(), hint)
    return text


def stream(command: Sequence[str | Path], *, cwd: Path | None = None) -> Iterator[bytes]:
    """Run a program and yield its standard output in pieces; raises ProcessError when it fails."""
    words = [str(word) for word in command]
    with subprocess.Popen(_tied(words), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdout is None or process.stderr is None:
            raise UnavailableError(f"cannot read from {words[0]}")
        try:
            while piece := process.stdout.read(CHUNK):
                yield piece
        except BaseException:
            process.kill()
            raise
        said = process.stderr.read().decode(errors="replace")
    if process.returncode != 0:
        raise failure(words, process.returncode, said, "")


def attach(command: Sequence[str | Path], *, hint: str = "", ends: Collection[int] = (0,)) -> int:
    """Run a program whose output goes straight to ours, as it comes, and return its code, which is one of `ends`.

    Raises ProcessError when it fails.
    """
    words = [str(word) for word in command]
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise UnavailableError(f"cannot start {words[0]}: {error.strerror}", where=words[0], hint=hint) from error
    if code not in ends:
        raise ProcessError(f"{Path(words[0]).name} ended with code {code}", where=" ".join(words), hint=hint)
    return code


def succeeds(command: Sequence[str | Path]) -> bool:
    """Say whether a program ends with code 0; what it prints is of no interest."""
    try:
        run(command)
    except ProcessError:
        return False
    return True


def _tied(words: list[str]) -> list[str]:
    """Return the command in a form that ends with us, even when we are killed: it may hold what a next run needs."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *words] if setpriv else words


def failure(words: Sequence[str], code: int, said: str, hint: str) -> ProcessError:
    """Return the error of a program that ended with `code`."""
    reason = _with_tail(f"{Path(words[0]).name} ended with code {code}", said)
    return ProcessError(reason, where=" ".join(words[:2]), hint=hint)


def _with_tail(why: str, said: str) -> str:
    tail = "\n  ".join(said.splitlines()[-TAIL_LINES:])
    return f"{why}:\n  {tail}"
