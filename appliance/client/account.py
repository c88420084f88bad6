"""The caller: logins and API keys."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import ApiKeyRequest
from appliance.client.transport import CSRF_HEADER, Resource
from appliance.client.views import ApiKey, Csrf, Done, Login, NewApiKey, Revoked, SignedIn, User
from appliance.client.words import Language


class Account(Resource):
    """The caller's own account and logins."""

    def log_in(self, name: str, password: str) -> SignedIn:
        """Begin a login; later calls of this client carry its cookie, and the token for changes with it."""
        signed_in = self._api.call(SignedIn, "POST", "/auth/login", body={"name": name, "password": password})
        self._api.headers[CSRF_HEADER] = signed_in["csrf_token"]
        return signed_in

    def log_out(self) -> Done:
        """End the login of this client."""
        return self._api.call(Done, "POST", "/auth/logout")

    def get(self) -> User:
        """Return who calls."""
        return self._api.call(User, "GET", "/auth/me")

    def speak(self, language: Language | None) -> User:
        """Let the console speak a language to the caller; None is that of the browser."""
        return self._api.call(User, "PATCH", "/auth/me", body={"language": language})

    def csrf(self) -> Csrf:
        """Return the token that changes with a login's cookie need."""
        return self._api.call(Csrf, "GET", "/auth/csrf")

    def replace_password(self, password: str) -> User:
        """Replace the password that an administrator has made; other logins end, and keys are revoked."""
        return self._api.call(User, "POST", "/auth/password", body={"password": password})

    def logins(self) -> list[Login]:
        """Return the browsers in which the caller is signed in."""
        return self._api.call(list[Login], "GET", "/auth/logins")

    def end_login(self, login_id: str) -> Done:
        """Sign out in one browser."""
        return self._api.call(Done, "DELETE", "/auth/logins/{login_id}", {"login_id": login_id})

    def end_logins(self) -> Done:
        """Sign out everywhere; keys stay."""
        return self._api.call(Done, "DELETE", "/auth/logins")


class ApiKeys(Resource):
    """The caller's API keys."""

    def list(self) -> builtins.list[ApiKey]:
        """Return the keys, without their secrets."""
        return self._api.call(list[ApiKey], "GET", "/api-keys")

    def create(self, **request: Unpack[ApiKeyRequest]) -> NewApiKey:
        """Make a key; only this answer holds it."""
        return self._api.call(NewApiKey, "POST", "/api-keys", body=request)

    def delete(self, key_id: str) -> Revoked:
        """Revoke a key, with all that were made with it."""
        return self._api.call(Revoked, "DELETE", "/api-keys/{key_id}", {"key_id": key_id})
