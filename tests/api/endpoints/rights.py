"""Rights as one table: each route, and how far each kind of person reaches with it. What is not here is refused."""

from __future__ import annotations

from tests.api.cluster import V1

PEOPLE = (
    *("admin", "auditor", "domain-admin", "domain-auditor", "manager", "member", "user"),
    *("agent", "anonymous"),
)
"""Of the site: admin and auditor; of a domain: those after them, the user without a project; last who is nobody's."""

OWNERS = ("own", "project", "private", "domain", "other", "site")
"""Whose a thing is: the caller's, or another's of the same project, who may keep a session private, of another project
of the same domain, of another domain, of the site itself. Nothing but a session is private."""

REACH = {"O": 1, "P": 2, "V": 3, "D": 4, "S": 6}
"""How many of the owners a letter means, from the first one on."""

LET_IN = "0"
"""Somebody may call the route, and finds nothing there."""
REFUSED = "."

# fmt: off
EVERYBODY     = "S S S S S S S S S"
KNOWN         = "S S S S S S S . ."
OWN           = "O O O O O O O . ."
OF_AGENTS     = ". . . . . . . S ."
OF_THE_CONTROLLER = ". . . . . . . . ."
OF_THE_SITE   = "S . . . . . . . ."
READ_SITE     = "S S . . . . . . ."
READ_SITEWIDE = "S S S S . . . . ."
READ_DOMAIN   = "S S D D . . . . ."
CHANGE_DOMAIN = "S . D . . . . . ."

RIGHTS = {
    # in the order of PEOPLE: admin, auditor; domain-admin, domain-auditor, manager, member, user; agent, anonymous
    "GET /":                                             KNOWN,
    "GET /docs":                                         EVERYBODY,
    "GET /health":                                       EVERYBODY,
    "GET /login":                                        EVERYBODY,
    "GET /password":                                     KNOWN,
    "POST /logout":                                      KNOWN,
    "GET /sessions":                                     "S S D D V P 0 . .",
    "GET /sessions/{name}":                              "S S D D V P 0 . .",
    "GET /sessions/{name}/log":                          "S S D D V P 0 . .",
    "GET /sessions/{name}/metrics":                      "S S D D V P 0 . .",
    "GET /sessions/{name}/terminal":                     "S . D . O O 0 . .",
    "POST /sessions/{name}/delete":                      "S . D . V O 0 . .",
    "POST /sessions/{name}/restart":                     "S . D . V O 0 . .",
    "POST /sessions/{name}/extend":                      "S . D . V O 0 . .",
    "POST /sessions/{name}/resize":                      "S . D . V O 0 . .",
    "GET /launch":                                       "S . D . P P 0 . .",
    "POST /launch":                                      "S . D . P P 0 . .",
    "POST /launch/check":                                "S . D . P P 0 . .",
    "GET /projects":                                     "S S D D P P 0 . .",
    "POST /projects":                                    CHANGE_DOMAIN,
    "GET /projects/{name}":                              "S S D D P P 0 . .",
    "POST /projects/{name}":                             "S . D . P . . . .",
    "GET /accounting":                                   "S S D D P O O . .",
    "GET /accounting/csv":                               "S S D D P O O . .",
    "POST /language":                                    KNOWN,
    "GET /keys":                                         OWN,
    "POST /keys":                                        KNOWN,
    "POST /keys/{key_id}/revoke":                        OWN,
    "GET /overview":                                     READ_SITE,
    "GET /users":                                        READ_DOMAIN,
    "POST /users":                                       CHANGE_DOMAIN,
    "POST /users/{name}":                                CHANGE_DOMAIN,
    "POST /users/{name}/delete":                         CHANGE_DOMAIN,
    "GET /queue":                                        READ_SITE,
    "GET /nodes":                                        "S S D D D D D . .",
    "POST /nodes/{name}/mode":                           CHANGE_DOMAIN,
    "GET /images":                                        "S S D D P P 0 . .",
    "POST /images":                                       "S . D . P P 0 . .",
    "POST /images/{name}:{tag}/check":                    "S . D . P O 0 . .",
    "POST /images/{name}:{tag}/delete":                   "S . D . P O 0 . .",
    "GET /resource-groups":                               "S S D D 0 0 0 . .",
    "POST /resource-groups":                              OF_THE_SITE,
    "GET /resource-groups/{name}":                        "S S D D 0 0 0 . .",
    "POST /resource-groups/{name}":                       CHANGE_DOMAIN,
    "POST /resource-groups/{name}/delete":                OF_THE_SITE,
    "GET /presets":                                       KNOWN,
    "POST /presets":                                      OF_THE_SITE,
    "POST /presets/{name}/delete":                        OF_THE_SITE,
    "GET /health/checks":                                 READ_SITE,
    "POST /health/checks/{check_id}/acknowledgement":     OF_THE_SITE,
    "POST /health/checks/{check_id}/acknowledgement/end": OF_THE_SITE,
    "POST /health/checks/{check_id}/clear":               OF_THE_SITE,
    "GET /repairs":                                       READ_SITE,
    "POST /repairs":                                      OF_THE_SITE,
    "GET /repairs/runs/{run_id}":                         READ_SITE,
    "GET /backups":                                       READ_SITE,
    "POST /backups":                                      OF_THE_SITE,
    "GET /audit":                                         READ_DOMAIN,
    "GET /openapi.json":                                 EVERYBODY,
    "POST /agent/v1/heartbeat":                          OF_AGENTS,
    "POST /agent/v1/metrics":                            OF_AGENTS,
    "POST /agent/v1/denied-calls":                       OF_AGENTS,
    "POST /agent/v1/app-callers":                        OF_AGENTS,
    "POST /agent/v1/repairs":                            OF_THE_CONTROLLER,
    f"GET {V1}/health":                                  EVERYBODY,
    f"GET {V1}/logs":                                    READ_SITE,
    f"GET {V1}/audit":                                   READ_DOMAIN,
    f"GET {V1}/audit/verification":                      READ_SITE,
    f"GET {V1}/audit/files":                             READ_SITE,
    f"GET {V1}/audit/files/{{day}}":                     READ_SITE,
    f"DELETE {V1}/audit/files/{{day}}":                  OF_THE_SITE,
    f"GET {V1}/repairs":                                 READ_SITE,
    f"POST {V1}/repairs/{{repair}}/runs":                OF_THE_SITE,
    f"GET {V1}/repair-runs":                             READ_SITE,
    f"GET {V1}/repair-runs/{{run_id}}":                  READ_SITE,
    f"GET {V1}/backups":                                 READ_SITE,
    f"GET {V1}/backup-orders":                           READ_SITE,
    f"POST {V1}/backup-orders":                          OF_THE_SITE,
    f"GET {V1}/backup-orders/{{order_id}}":              READ_SITE,
    f"GET {V1}/health/checks":                           READ_SITE,
    f"GET {V1}/health/changes":                          READ_SITE,
    f"PUT {V1}/health/checks/{{check_id}}/acknowledgement": OF_THE_SITE,
    f"DELETE {V1}/health/checks/{{check_id}}/acknowledgement": OF_THE_SITE,
    f"POST {V1}/health/checks/{{check_id}}/clear":       OF_THE_SITE,
    f"GET {V1}/metrics":                                 READ_SITE,
    f"GET {V1}/settings":                                KNOWN,
    f"POST {V1}/auth/login":                             EVERYBODY,
    f"POST {V1}/auth/logout":                            KNOWN,
    f"GET {V1}/auth/me":                                 KNOWN,
    f"PATCH {V1}/auth/me":                               KNOWN,
    f"GET {V1}/auth/csrf":                               KNOWN,
    f"POST {V1}/auth/password":                          KNOWN,
    f"GET {V1}/auth/logins":                             OWN,
    f"DELETE {V1}/auth/logins":                          KNOWN,
    f"DELETE {V1}/auth/logins/{{login_id}}":             OWN,
    f"GET {V1}/api-keys":                                OWN,
    f"POST {V1}/api-keys":                               KNOWN,
    f"DELETE {V1}/api-keys/{{key_id}}":                  OWN,
    f"GET {V1}/users":                                   READ_DOMAIN,
    f"POST {V1}/users":                                  CHANGE_DOMAIN,
    f"GET {V1}/users/{{name}}":                          READ_DOMAIN,
    f"PATCH {V1}/users/{{name}}":                        CHANGE_DOMAIN,
    f"DELETE {V1}/users/{{name}}":                       CHANGE_DOMAIN,
    f"PUT {V1}/users/{{name}}/password":                 CHANGE_DOMAIN,
    f"GET {V1}/users/{{name}}/api-keys":                 READ_DOMAIN,
    f"DELETE {V1}/users/{{name}}/api-keys/{{key_id}}":   CHANGE_DOMAIN,
    f"DELETE {V1}/users/{{name}}/logins":                CHANGE_DOMAIN,
    f"GET {V1}/user-policies":                           READ_SITEWIDE,
    f"POST {V1}/user-policies":                          OF_THE_SITE,
    f"GET {V1}/user-policies/{{name}}":                  READ_SITEWIDE,
    f"PATCH {V1}/user-policies/{{name}}":                OF_THE_SITE,
    f"DELETE {V1}/user-policies/{{name}}":               OF_THE_SITE,
    f"GET {V1}/domains":                                 READ_DOMAIN,
    f"POST {V1}/domains":                                OF_THE_SITE,
    f"PATCH {V1}/domains/{{name}}":                      OF_THE_SITE,
    f"DELETE {V1}/domains/{{name}}":                     OF_THE_SITE,
    f"GET {V1}/accounting":                              "S S D D P O O . .",
    f"GET {V1}/accounting/timeline":                     "S S D D P O O . .",
    f"GET {V1}/projects":                                "S S D D P P 0 . .",
    f"POST {V1}/projects":                               CHANGE_DOMAIN,
    f"GET {V1}/projects/{{name}}":                       "S S D D P P 0 . .",
    f"PATCH {V1}/projects/{{name}}":                     "S . D . P . . . .",
    f"DELETE {V1}/projects/{{name}}":                    CHANGE_DOMAIN,
    f"GET {V1}/resource-groups":                         "S S D D 0 0 0 . .",
    f"POST {V1}/resource-groups":                        OF_THE_SITE,
    f"GET {V1}/resource-groups/{{name}}":                "S S D D 0 0 0 . .",
    f"PATCH {V1}/resource-groups/{{name}}":              CHANGE_DOMAIN,
    f"DELETE {V1}/resource-groups/{{name}}":             OF_THE_SITE,
    f"GET {V1}/images":                                  "S S D D P P 0 . .",
    f"POST {V1}/images":                                 "S . D . P P 0 . .",
    f"POST {V1}/images/{{name}}:{{tag}}/check":          "S . D . P O 0 . .",
    f"DELETE {V1}/images/{{name}}:{{tag}}":              "S . D . P O 0 . .",
    f"GET {V1}/presets":                                 KNOWN,
    f"POST {V1}/presets":                                OF_THE_SITE,
    f"GET {V1}/presets/{{name}}":                        KNOWN,
    f"PATCH {V1}/presets/{{name}}":                      OF_THE_SITE,
    f"DELETE {V1}/presets/{{name}}":                     OF_THE_SITE,
    f"GET {V1}/sandboxes":                               KNOWN,
    f"POST {V1}/sandboxes":                              OF_THE_SITE,
    f"GET {V1}/sandboxes/{{name}}":                      KNOWN,
    f"PATCH {V1}/sandboxes/{{name}}":                    OF_THE_SITE,
    f"DELETE {V1}/sandboxes/{{name}}":                   OF_THE_SITE,
    f"GET {V1}/nodes":                                   "S S D D D D D . .",
    f"GET {V1}/nodes/{{name}}":                          "S S D D D D D . .",
    f"PATCH {V1}/nodes/{{name}}/mode":                   CHANGE_DOMAIN,
    f"DELETE {V1}/nodes/{{name}}":                       OF_THE_SITE,
    f"DELETE {V1}/nodes/{{name}}/unknown-containers":    CHANGE_DOMAIN,
    f"GET {V1}/sessions":                                "S S D D V P 0 . .",
    f"POST {V1}/sessions":                               "S . D . P P 0 . .",
    f"POST {V1}/sessions/batch":                         "S . D . P P 0 . .",
    f"POST {V1}/sessions/check":                         "S . D . P P 0 . .",
    f"GET {V1}/sessions/{{name}}":                       "S S D D V P 0 . .",
    f"PATCH {V1}/sessions/{{name}}":                     "S . D . V O 0 . .",
    f"DELETE {V1}/sessions/{{name}}":                    "S . D . V O 0 . .",
    f"POST {V1}/sessions/{{name}}/restart":              "S . D . V O 0 . .",
    f"POST {V1}/sessions/{{name}}/extend":               "S . D . V O 0 . .",
    f"GET {V1}/sessions/{{name}}/logs":                  "S S D D V P 0 . .",
    f"GET {V1}/sessions/{{name}}/metrics":               "S S D D V P 0 . .",
    f"GET {V1}/sessions/{{name}}/denied-calls":          "S S D D V . . . .",
    f"GET {V1}/sessions/{{name}}/events":               "S S D D V P 0 . .",
    f"WEBSOCKET {V1}/sessions/{{name}}/exec":            "S . D . O O 0 . .",
    f"GET {V1}/volumes":                                 "S S D D P P 0 . .",
    f"POST {V1}/volumes":                                "S . D . P . . . .",
    f"GET {V1}/volumes/{{name}}":                        "S S D D P P 0 . .",
    f"DELETE {V1}/volumes/{{name}}":                     "S . D . P . . . .",
    f"POST {V1}/volumes/{{name}}/hand-over":             "S . D . . . . . .",
    f"GET {V1}/apps/authorize":                          "S . D . O O 0 . .",
    f"GET {V1}/scheduler/queue":                         READ_SITE,
    f"GET {V1}/scheduler/cycle":                         READ_SITE,
}
# fmt: on


def letter_of(person: str, route: str) -> str:
    """Return the letter of a person in the row of a route."""
    return RIGHTS[route].split()[PEOPLE.index(person)]
