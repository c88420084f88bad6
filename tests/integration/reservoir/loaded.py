"""`penstock` as a child of a process that has loaded it already, so that a run costs no start of an interpreter.

Run as a module it is that process. Requests and answers are lines of JSON; it ends with the tests that started it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.integration.reservoir.changes import watch

ROOT = Path(__file__).parents[3]
# what no command imports, and what libraries import when they are used
LEFT_OUT = ("reservoir.installer", "reservoir.serving.uploads.plugin")
LATE = ("encodings.cp437", "httpcore", "uv")


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code (-9: it was killed), what it printed, and the changes it got to if these count."""

    code: int
    stdout: str
    stderr: str
    changes: list[str]

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.stdout + self.stderr


class Loaded:
    """Runs commands, one after another, each in a child of a process that starts with the first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self,
        *words: str | Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        below: Path | None = None,
        before: int | None = None,
    ) -> Ended:
        """Run `penstock`; `environment` comes to that of the tests.

        With `below`, changes in that folder count, and with `before`, it is killed right before the one so numbered.
        """
        request = {
            "words": [str(word) for word in words],
            "environment": os.environ | dict(environment),
            "folder": str(Path.cwd()),
            "below": below and str(below),
            "before": before,
        }
        process = self._process = self._process or _started()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return Ended(**json.loads(process.stdout.readline()))
        except BaseException:
            # the next run must not read the answer to this one
            process.kill()
            self._process = None
            raise


loaded = Loaded()
"""That of the tests of this process."""


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _serve() -> None:
    main = _load()
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as told:
            child = os.fork()
            if child == 0:
                _become(main, request, out.fileno(), err.fileno(), told.fileno())
            _, status = os.waitpid(child, 0)
            texts = []
            for file in (out, err, told):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        ended = Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], texts[2].split())
        print(json.dumps(asdict(ended)), flush=True)


def _load() -> Callable[[], None]:
    """Import what commands import when they need it, and make the tree of commands, which is the same in each run."""
    import typer.main

    import reservoir
    from appliance.cli.app import main

    ours = (module.name for module in pkgutil.walk_packages(reservoir.__path__, "reservoir."))
    for name in (*LATE, *(name for name in ours if not name.startswith(LEFT_OUT))):
        importlib.import_module(name)
    for name in ("get_command", "get_group"):
        setattr(typer.main, name, functools.cache(getattr(typer.main, name)))
    sys.argv = ["penstock", "reservoir", "--help"]
    with contextlib.redirect_stdout(None), contextlib.suppress(SystemExit):
        main()
    gc.collect()
    gc.freeze()
    return main


def _become(main: Callable[[], None], request: dict[str, Any], out: int, err: int, told: int) -> None:
    """Become the command that is asked for."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["penstock", *request["words"]]
    if request["below"]:
        from reservoir.signing import openpgp_key

        # a first publication makes a key: how long it is makes no difference to a power cut, but takes its time
        openpgp_key.BITS = 1024
        watch(request["below"], request["before"], told)
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
