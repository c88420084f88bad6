"""Settings of what is logged: the part `logs` of `site.yml`. Pure."""

from __future__ import annotations

from pydantic import Field

from common.strict import StrictModel

JOURNAL_OF_NODE_MIB = 128
"""What the gathered journal of one node needs: room for files that are begun while others are full."""


class ContainerLogSettings(StrictModel):
    """How much a container may say. Docker's own configuration has it, and the agents that start sessions."""

    container_log_mib: int = Field(
        default=10, ge=1, le=1024, description="a file of what a container writes to its output is full at so many MiB"
    )
    container_log_files: int = Field(
        default=3, ge=2, le=100, description="so many of these files are kept of each container"
    )


class LogSettings(ContainerLogSettings):
    """How much of each node its logs may fill."""

    journal_mib: int = Field(
        default=1024, ge=64, description="most that the journal of a node may fill, in MiB; then its oldest part goes"
    )
    gather: bool = Field(
        default=False, description="gather the journals of all nodes on the master, for `penstock logs` and the API"
    )
    gathered_mib: int = Field(
        default=4096,
        ge=256,
        description="most that the gathered journals may fill on the master, in MiB; "
        f"{JOURNAL_OF_NODE_MIB} at least for each node",
    )
    file_mib: int = Field(
        default=64,
        ge=1,
        le=65536,
        description="a file that a service logs into begins anew at so many MiB, at the next full hour",
    )
