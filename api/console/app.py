"""The console's part of the application."""

from __future__ import annotations

from fastapi import FastAPI

from api.console import (
    account,
    accounting,
    accounting_files,
    apps,
    audit,
    backups,
    checks,
    domains,
    groups,
    home,
    images,
    keys,
    launch,
    login,
    metrics,
    nodes,
    notices,
    overview,
    policies,
    presets,
    project,
    projects,
    queue,
    repairs,
    routes,
    sandboxes,
    session,
    sessions,
    terminal,
    users,
    volumes,
)


def add_console(app: FastAPI) -> None:
    """Add the pages of the console to the API's application."""
    for router in (
        login.router,
        account.router,
        home.router,
        sessions.router,
        session.router,
        terminal.router,
        apps.router,
        metrics.router,
        launch.router,
        projects.router,
        project.router,
        accounting.router,
        accounting_files.router,
        keys.router,
        overview.router,
        queue.router,
        nodes.router,
        users.router,
        policies.router,
        domains.router,
        sandboxes.router,
        images.router,
        groups.router,
        presets.router,
        volumes.router,
        checks.router,
        repairs.router,
        backups.router,
        notices.router,
        audit.router,
    ):
        app.include_router(router)
    app.add_middleware(routes.Listeners)
    routes.answer_by_pages(app)
