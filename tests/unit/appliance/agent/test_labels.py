"""What an agent finds its containers by after a restart."""

from __future__ import annotations

import hashlib

from appliance.agent.labels import digest_of
from tests.unit.appliance.agent.samples import make


def test_digest_tells_specs_apart_and_ignores_fields_at_their_default() -> None:
    given = '{"id":"c1","session_id":"s1","session_name":"train","project":"team-a","user":"alice","image":"python"}'
    assert digest_of(make(image="python")) == hashlib.sha256(given.encode()).hexdigest()
    assert digest_of(make()) == digest_of(make(shm_mib=64, args=[]))
    assert digest_of(make()) != digest_of(make(shm_mib=65))
