"""Shares of GPUs as people write them."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.client import Client
from common.errors import InputError
from common.gpu.units import MILLI, format_gpus, parse_gpus

GpusOption = Annotated[str | None, typer.Option("-g", "--gpus", metavar="N", help="GPUs, such as 0.5, 1 or 2.5.")]
FgpuOption = Annotated[str | None, typer.Option("--fgpu", metavar="N", help="The same in units of fGPU.")]


def milli(client: Client, gpus: str | None, fgpu: str | None, hint: str) -> int:
    """Return the milli-GPU that `-g` or `--fgpu` asks for; raises InputError with the hint unless it is one of both."""
    if (gpus is None) == (fgpu is None):
        raise InputError("the share is given twice" if gpus else "no share of GPUs is given", where="-g", hint=hint)
    if fgpu is None:
        return parse_gpus(gpus or "", "-g")
    settings = client.system.settings()
    found, rest = divmod(parse_gpus(fgpu, "--fgpu") * settings["fgpu_milli"], MILLI)
    if rest:
        step = format_gpus(settings["step_milli"])
        raise InputError(
            f"{fgpu} fGPU is not a whole number of milli-GPU",
            where="--fgpu",
            hint=f"ask for a multiple of {step} GPU; one fGPU is {format_gpus(settings['fgpu_milli'])} GPU here",
        )
    return found
