"""The documentation page of the API: Swagger UI from our own files, with nothing from outside the site."""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.endpoints.access import public
from api.endpoints.routes import Router

STATIC = Path(__file__).parents[1] / "static"
VENDOR = STATIC / "vendor" / "swagger-ui"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

HEADERS_OF_FILES = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

KEPT = (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED)
"""What a browser keeps of files that it asked for by their version."""

router = Router()


@router.get("/docs", include_in_schema=False, response_class=HTMLResponse)
@public
async def show_docs() -> FileResponse:
    """Show the interactive documentation; a checkout without the files of Swagger UI shows how to get them."""
    page = "docs.html" if (VENDOR / "swagger-ui-bundle.js").is_file() else "docs-unbuilt.html"
    return FileResponse(STATIC / page, media_type="text/html", headers=HEADERS)


@router.get("/openapi.json", include_in_schema=False)
@public
async def show_openapi(request: Request) -> JSONResponse:
    """Describe the API by the OpenAPI standard."""
    return JSONResponse(request.app.openapi())


@cache
def version_of(name: str) -> str:
    """Return what is another text whenever a file that pages load is."""
    file = STATIC / name
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.is_file() else "0"


class Files(StaticFiles):
    """Files that pages load; by itself none of them is one."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return the answer for a file."""
        answer = super().file_response(*args, **options)
        answer.headers.update(HEADERS_OF_FILES)
        return answer

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the answer for a path; what is asked for by its version never changes, and is kept."""
        answer = await super().get_response(path, scope)
        asked = scope["query_string"].decode("latin-1")
        if answer.status_code in KEPT and asked == f"v={version_of(path)}":
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer


def mount_static(app: FastAPI) -> None:
    """Serve the files that our own pages load."""
    app.mount("/static", Files(directory=STATIC), name="static")
