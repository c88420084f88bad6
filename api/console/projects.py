"""The projects that the caller sees: who is in them, what they are guaranteed and hold, and until when."""

from __future__ import annotations

from fastapi import Request, Response

from api.auth.policy import Action
from api.console import pages, project_forms
from api.console.routes import Router
from api.endpoints import projects
from api.endpoints.access import Caller, action
from api.endpoints.transactions import Reading

router = Router(prefix="/projects")


@router.get("")
@action(Action.PROJECT_READ)
async def list_projects(request: Request, caller: Caller, db: Reading) -> Response:
    """Show the projects by name."""
    values = {
        "projects": await projects.list_projects(caller, db),
        "groups": await project_forms.groups_for(db, caller, caller.domain),
        "kinds": project_forms.KINDS,
        "weighs": caller.reach(Action.PROJECT_WEIGH).anything,
        "of_site": caller.domain is None,
    }
    return await pages.live(request, "projects.html", "projects_live.html", values)
