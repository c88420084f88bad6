"""Bodies of the domain endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.resources.projects.schemas import Quota, Weight
from api.resources.schemas import Name, Request, Text, View

Description = Annotated[Text, Field(max_length=2000)]


class DomainRequest(Request):
    """A domain to create. `quota_milli` limits the quotas of its projects together, in milli-GPU; null: no limit.

    Where it `shares`, its projects have these together in any case, and share inside of it what is spare: by its
    `over_quota_weight` (null: its quota; 0: what nobody with a part of it wants), up to `limit_milli` in all (null: no
    limit). `policy` is the user policy of its people, but for those whom an administrator of the site has given another
    one.
    """

    name: Name
    description: Description = ""
    quota_milli: Quota | None = None
    shares: bool = False
    over_quota_weight: Weight | None = None
    limit_milli: Quota | None = None
    policy: Name | None = None


class DomainChange(Request):
    """What to change of a domain; what is left out stays. null takes a limit, the weight or the policy away."""

    description: Description = ""
    quota_milli: Quota | None = None
    shares: bool = False
    over_quota_weight: Weight | None = None
    limit_milli: Quota | None = None
    policy: Name | None = None


class DomainView(View):
    """A domain; users, projects and resource groups name it. `quota_milli` limits the quotas of its projects."""

    name: str
    description: str
    quota_milli: int | None
    shares: bool
    over_quota_weight: int | None
    limit_milli: int | None
    policy: str | None
    created_at: datetime
