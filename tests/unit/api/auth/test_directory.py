"""Ids of entries and places of people, as directories of several kinds have them."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api.auth import directory
from api.settings import Settings
from common.settings.control_api import EntryIdAttribute

TEMPLATE = "uid={name},ou=people,dc=example,dc=org"


@given(st.binary(min_size=16, max_size=16))
def test_an_object_guid_is_written_as_its_directory_shows_it_and_read_again(value: bytes) -> None:
    text = directory._text(value, "objectGUID")
    assert text == str(UUID(bytes_le=value))
    assert directory._raw(text, "objectGUID") == value


@given(st.text(min_size=1), st.sampled_from([name for name in get_args(EntryIdAttribute) if name != "objectGUID"]))
def test_other_ids_are_text(value: str, attribute: EntryIdAttribute) -> None:
    assert directory._raw(directory._text(value.encode(), attribute), attribute) == value.encode()


@given(st.text(min_size=1))
def test_no_id_writes_a_filter_of_its_own(value: str) -> None:
    inside = directory._any_of([value], "entryUUID").removeprefix("(|(entryUUID=").removesuffix("))")
    assert not set(inside) & set("()*|&!=")


def test_people_are_where_the_settings_say() -> None:
    template = Settings(ldap_url="ldaps://d", ldap_user_dn=TEMPLATE)
    assert directory._people(template) == ("ou=people,dc=example,dc=org", "(uid=*)")
    assert directory._people(template, "c*") == ("ou=people,dc=example,dc=org", "(uid=c\\2a)")
    search = Settings(ldap_url="ldaps://d", ldap_search_base="dc=x", ldap_search_filter="(&(cn={name})(ou=a))")
    assert directory._people(search) == ("dc=x", "(&(cn=*)(ou=a))")
    assert directory._people(search, "(") == ("dc=x", "(&(cn=\\28)(ou=a))")


@pytest.mark.parametrize("template", ["{name}", "{name}@example.org", "ou={name},cn={name},dc=x", "uid={name}"])
def test_a_template_is_the_name_of_an_entry(template: str) -> None:
    with pytest.raises(ValidationError):
        Settings(ldap_url="ldaps://d", ldap_user_dn=template)


@pytest.mark.anyio
async def test_a_directory_that_hangs_takes_no_thread_of_others() -> None:
    """The scheduler decides in threads that all share: a small machine has six of them."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        settings = Settings(ldap_url=f"ldaps://127.0.0.1:{silent.getsockname()[1]}", ldap_user_dn=TEMPLATE)
        asked = asyncio.create_task(directory.person(settings, "carol", "secret"))
        async with asyncio.timeout(30):
            taken, _ = await asyncio.get_running_loop().sock_accept(silent)
        with taken:
            async with asyncio.timeout(directory.TIMEOUT_S - 1):
                assert await asyncio.to_thread(int) == 0
            assert not asked.done()
            asked.cancel()
