"""The control API as Python: `Client(url, api_key=..., ca=...).sessions.submit(name="train1", ...)`.

Every operation for people and programs has a method, with the types of the API's own OpenAPI document. Light to
import, because the command line starts with it.
"""

from __future__ import annotations

from appliance.client.account import Account, ApiKeys
from appliance.client.audit import Audit
from appliance.client.backups import Backups
from appliance.client.health import Health
from appliance.client.images import Images
from appliance.client.logs import Logs
from appliance.client.nodes import Nodes
from appliance.client.notices import Notices
from appliance.client.oversight import Accounting, Domains, Policies
from appliance.client.people import Users
from appliance.client.projects import Groups, Projects, Volumes
from appliance.client.repairs import Repairs
from appliance.client.scheduler import Scheduler
from appliance.client.sessions import Presets, Sandboxes, Sessions
from appliance.client.system import System
from appliance.client.transport import ANSWER_S, Transport

__all__ = ["Client"]


class Client(Transport):
    """A control API at `url`, called with an API key; `ca` is the PEM text of the site's authority.

    Calls raise the PenstockError that an answer stands for, with field, reason and hint. Shares are in milli-GPU:
    1,000 are one GPU.
    """

    def __init__(self, url: str, *, api_key: str = "", ca: str = "", answer_s: float = ANSWER_S) -> None:
        """Prepare; raises InputError where the address cannot be one."""
        super().__init__(url, api_key=api_key, ca=ca, answer_s=answer_s)
        self.account = Account(self)
        self.api_keys = ApiKeys(self)
        self.users = Users(self)
        self.policies = Policies(self)
        self.domains = Domains(self)
        self.accounting = Accounting(self)
        self.projects = Projects(self)
        self.volumes = Volumes(self)
        self.groups = Groups(self)
        self.images = Images(self)
        self.nodes = Nodes(self)
        self.sessions = Sessions(self)
        self.presets = Presets(self)
        self.notices = Notices(self)
        self.sandboxes = Sandboxes(self)
        self.scheduler = Scheduler(self)
        self.logs = Logs(self)
        self.audit = Audit(self)
        self.backups = Backups(self)
        self.repairs = Repairs(self)
        self.health = Health(self)
        self.system = System(self)
