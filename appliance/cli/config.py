"""Memory of the command line: which control API, the key for it, and the current project."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from appliance.client import Client
from appliance.client.transport import ANSWER_S
from appliance.site.settings import config_folder
from common import files
from common.errors import InputError, UnauthenticatedError, UnavailableError


@dataclass(frozen=True)
class Config:
    """The remembered login; `ca` is the PEM text of the site's authority, `key_id` names the key to revoke."""

    url: str
    api_key: str
    key_id: str
    ca: str = ""
    project: str = ""

    @property
    def client(self) -> Client:
        """The control API of this login."""
        return self.connect()

    def connect(self, answer_s: float = ANSWER_S) -> Client:
        """Return the control API of this login; `answer_s` limits the wait for it, in seconds."""
        return Client(self.url, api_key=self.api_key, ca=self.ca, answer_s=answer_s)

    def project_or(self, chosen: str | None) -> str:
        """Return the chosen project, else the current one; raises InputError where there is neither."""
        if project := chosen or self.project:
            return project
        raise InputError(
            "no project is chosen", where="project", hint="run `penstock project set NAME`, or add `-p NAME`"
        )


def path() -> Path:
    """Return where the login is kept."""
    return config_folder() / "config.json"


def find() -> Config | None:
    """Return the remembered login, or None; raises InputError where the file is not one of ours."""
    try:
        given = json.loads(path().read_text(encoding="utf-8"))
        return Config(**{field.name: str(given[field.name]) for field in fields(Config)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the remembered login cannot be read ({type(error).__name__})",
            where=str(path()),
            hint="run `penstock login` again",
        ) from error


def load() -> Config:
    """Return the remembered login; raises UnauthenticatedError where there is none."""
    if config := find():
        return config
    raise UnauthenticatedError("you are not logged in", hint="run `penstock login https://MASTER:56789 --user NAME`")


def save(config: Config) -> None:
    """Remember a login, readable by this user only; a reader sees the old file or the new one, never a half."""
    folder = path().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(path(), json.dumps(asdict(config), indent=2), 0o600)
    except OSError as error:
        raise UnavailableError(
            f"the login cannot be kept: {error.strerror}", where=str(folder), hint="make the folder writable"
        ) from error


def forget() -> None:
    """Forget the login."""
    path().unlink(missing_ok=True)
