"""Users, for administrators."""

from __future__ import annotations

import builtins
from typing import Unpack

from appliance.client.requests import UserChange, UserRequest
from appliance.client.transport import Resource
from appliance.client.views import ApiKey, Done, Revoked, User


class Users(Resource):
    """All users."""

    def list(self) -> builtins.list[User]:
        """Return the users whom the caller looks after."""
        return self._api.call(list[User], "GET", "/users")

    def get(self, name: str) -> User:
        """Return one user."""
        return self._api.call(User, "GET", "/users/{name}", {"name": name})

    def create(self, **request: Unpack[UserRequest]) -> User:
        """Create a user."""
        return self._api.call(User, "POST", "/users", body=request)

    def update(self, name: str, /, **changes: Unpack[UserChange]) -> User:
        """Change a user; what is left out stays. A new password ends the user's logins and revokes the keys."""
        return self._api.call(User, "PATCH", "/users/{name}", {"name": name}, body=changes)

    def delete(self, name: str) -> Done:
        """Delete a user who has no live session."""
        return self._api.call(Done, "DELETE", "/users/{name}", {"name": name})

    def set_password(self, name: str, password: str) -> User:
        """Give a user another password."""
        return self._api.call(User, "PUT", "/users/{name}/password", {"name": name}, body={"password": password})

    def end_logins(self, name: str) -> Done:
        """Sign a user out everywhere; keys stay."""
        return self._api.call(Done, "DELETE", "/users/{name}/logins", {"name": name})

    def api_keys(self, name: str) -> builtins.list[ApiKey]:
        """Return a user's keys, without their secrets."""
        return self._api.call(list[ApiKey], "GET", "/users/{name}/api-keys", {"name": name})

    def revoke_api_key(self, name: str, key_id: str) -> Revoked:
        """Revoke one of a user's keys, with all that were made with it."""
        names = {"name": name, "key_id": key_id}
        return self._api.call(Revoked, "DELETE", "/users/{name}/api-keys/{key_id}", names)
