"""Accounts of people whom a directory knows: whose they are, who gives their roles, and when their keys end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, select, update

from api.auth import directory
from api.control import ldap_check
from api.settings import Settings
from api.tables.api_keys import ApiKey
from api.tables.logins import Login
from api.tables.users import User
from common.checks import CheckState
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster, sign_in
from tests.api.resources.audit.log import lines
from tests.api.steps import body
from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.slapd import BASE, PEOPLE, SECRET, Slapd, login, searching, settings_of

pytestmark = pytest.mark.anyio

CAROL = f"uid=carol,{PEOPLE}"
ADMINS = f"cn=admins,ou=groups,{BASE}"
ENTRY = f"changetype: add\nobjectClass: inetOrgPerson\nuid: carol\ncn: carol\nsn: carol\nuserPassword: {SECRET}\n"


@pytest.fixture
async def cluster(slapd: Slapd, database_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    settings = settings_of(slapd, **searching(tmp_path), ldap_disabled_filter="(employeeType=disabled)")
    async with running_cluster(database_url, **settings) as running:
        yield running


@pytest.fixture(autouse=True)
def people_of_before(slapd: Slapd) -> Iterator[None]:
    """Let the next test find carol's entry, which is in no group."""
    yield
    for dn in (CAROL, f"uid=caroline,{PEOPLE}"):
        slapd.modify(f"dn: {dn}\nchangetype: delete\n", check=False)
    slapd.modify(f"dn: {CAROL}\n{ENTRY}")
    slapd.modify(f"dn: {ADMINS}\nchangetype: modify\nreplace: member\nmember: uid=chief,{PEOPLE}\n")


async def key_of(cluster: Cluster, name: str) -> httpx.AsyncClient:
    """Sign somebody in and return a client with a key."""
    async with cluster.client() as page:
        await sign_in(page, name, SECRET)
        return cluster.client((await ok(page.post(f"{V1}/api-keys", json={"name": "laptop"})))["key"])


async def check(cluster: Cluster) -> None:
    """Let the time pass after which the directory is asked again."""
    cluster.clock.passed += cluster.settings.ldap_check_s
    await cluster.settle()


# --- whose an account is ---------------------------------------------------------------------------------------------


async def test_another_entry_of_the_same_name_is_another_person(cluster: Cluster, slapd: Slapd) -> None:
    async with cluster.client() as page:
        carol = await sign_in(page, "carol", SECRET)
        slapd.modify(f"dn: {CAROL}\nchangetype: delete\n")
        slapd.modify(f"dn: {CAROL}\n{ENTRY}")
        error = await refused(login(page, "carol"), 403)
        assert error["reason"] == "the account carol belongs to another entry of the directory"
        assert "penstock user unbind carol" in error["hint"]

        freed = await ok(cluster.admin.patch(f"{V1}/users/carol", json={"directory_id": None}))
        assert freed["directory_id"] is None
        again = await sign_in(page, "carol", SECRET)
        assert again["id"] == carol["id"]
        assert again["directory_id"] not in (None, carol["directory_id"])


async def test_who_is_bound_anew_leaves_keys_and_logins_behind(cluster: Cluster) -> None:
    async with await key_of(cluster, "carol") as laptop, cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        await ok(cluster.admin.patch(f"{V1}/users/carol", json={"directory_id": None}))
        await refused(laptop.get(f"{V1}/auth/me"), 401)
        await refused(page.get(f"{V1}/auth/me"), 401)


async def test_nobody_names_the_entry_of_an_account_by_hand(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)
    error = await refused(cluster.admin.patch(f"{V1}/users/carol", json={"directory_id": "another"}), 422)
    assert error["where"] == "directory_id"


async def test_an_entry_that_is_renamed_keeps_its_account(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop, cluster.client() as page:
        slapd.modify(f"dn: {CAROL}\nchangetype: modrdn\nnewrdn: uid=caroline\ndeleteoldrdn: 1\n")
        await check(cluster)
        carol = await ok(laptop.get(f"{V1}/auth/me"))
        renamed = await sign_in(page, "caroline", SECRET)
        assert (renamed["id"], renamed["name"]) == (carol["id"], "carol")


async def test_an_account_of_before_belongs_to_who_signs_in_next(cluster: Cluster) -> None:
    async with cluster.client() as page:
        carol = await sign_in(page, "carol", SECRET)
        await forget_entries(cluster)
        assert (await sign_in(page, "carol", SECRET))["directory_id"] == carol["directory_id"]


@pytest.mark.parametrize("attribute", ["objectGUID", "nsUniqueId"])
async def test_a_directory_of_another_kind_says_which_setting_is_wrong(
    slapd: Slapd, database_url: str, attribute: str
) -> None:
    settings = settings_of(slapd, ldap_id_attribute=attribute)
    async with running_cluster(database_url, **settings) as cluster, cluster.client() as page:
        error = await refused(login(page, "carol"), 503)
        assert error["reason"] == f"the directory does not show {attribute} of carol"
        assert "ldap_id_attribute" in error["hint"]


# --- who gives roles -------------------------------------------------------------------------------------------------


async def test_a_role_given_by_hand_stays_until_it_is_left_to_the_directory(cluster: Cluster, slapd: Slapd) -> None:
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        given = await ok(cluster.admin.patch(f"{V1}/users/carol", json={"role": "auditor"}))
        assert given["role_source"] == "local"
        assert (await sign_in(page, "carol", SECRET))["role"] == "auditor"
        slapd.modify(f"dn: {ADMINS}\nchangetype: modify\nadd: member\nmember: {CAROL}\n")
        assert (await sign_in(page, "carol", SECRET))["role"] == "auditor"
        await ok(cluster.admin.patch(f"{V1}/users/carol", json={"role_source": "ldap"}))
        assert (await sign_in(page, "carol", SECRET))["role"] == "admin"


async def test_a_role_given_by_hand_is_one_also_where_it_is_the_same(cluster: Cluster, slapd: Slapd) -> None:
    """An administrator says that carol is a member, whatever group she comes to."""
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        await ok(cluster.admin.patch(f"{V1}/users/carol", json={"role": "member"}))
        slapd.modify(f"dn: {ADMINS}\nchangetype: modify\nadd: member\nmember: {CAROL}\n")
        assert (await sign_in(page, "carol", SECRET))["role"] == "member"


async def test_a_directory_without_groups_takes_no_role_away(slapd: Slapd, database_url: str) -> None:
    settings = settings_of(slapd, ldap_admin_group=None, ldap_auditor_group=None)
    async with running_cluster(database_url, **settings) as cluster, cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        async with cluster.database.transaction() as db:
            await db.execute(update(User).where(User.name == "carol").values(role="auditor"))
        assert (await sign_in(page, "carol", SECRET))["role"] == "auditor"


# --- when keys end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["template", "search"])
async def test_keys_and_logins_of_who_has_left_the_directory_end(
    slapd: Slapd, database_url: str, tmp_path: Path, how: str
) -> None:
    changes = searching(tmp_path)
    if how == "template":
        changes = changes | {"ldap_search_base": None, "ldap_user_dn": f"uid={{name}},{PEOPLE}"}
    async with running_cluster(database_url, **settings_of(slapd, **changes)) as cluster, cluster.client() as page:
        async with await key_of(cluster, "carol") as laptop, await key_of(cluster, "chief") as other:
            await sign_in(page, "carol", SECRET)
            await check(cluster)
            await ok(laptop.get(f"{V1}/auth/me"))
            slapd.modify(f"dn: {CAROL}\nchangetype: delete\n")
            await cluster.settle()
            await ok(laptop.get(f"{V1}/auth/me"))
            await check(cluster)
            await refused(laptop.get(f"{V1}/auth/me"), 401)
            await refused(page.get(f"{V1}/auth/me"), 401)
            await ok(other.get(f"{V1}/auth/me"))
        await ok(cluster.admin.get(f"{V1}/auth/me"))


@pytest.mark.parametrize("keys", ["with keys", "without any"])
@pytest.mark.parametrize("how", ["delete", "modify\nreplace: employeeType\nemployeeType: disabled"])
async def test_what_waits_of_who_has_left_the_directory_never_begins(
    cluster: Cluster, slapd: Slapd, how: str, keys: str
) -> None:
    await cluster.add_image()
    async with await key_of(cluster, "carol") as laptop:
        await cluster.add_project("team-a", 1000, "carol")
        await ok(laptop.post(f"{V1}/sessions", json=body()))
        await cluster.submit("other")
        if keys == "without any":
            for table in (ApiKey, Login):
                async with cluster.database.transaction() as db:
                    await db.execute(
                        delete(table).where(table.user_id.in_(select(User.id).where(User.name == "carol")))
                    )
    await check(cluster)
    assert await cluster.states() == {"demo": "PENDING", "other": "PENDING"}
    slapd.modify(f"dn: {CAROL}\nchangetype: {how}\n")
    await check(cluster)
    assert await cluster.states() == {"demo": "FAILED", "other": "PENDING"}
    session = await cluster.session("demo")
    assert (session["reason"], session["cause"]) == ("carol has left the directory, or is disabled there", "no-right")


async def test_keys_of_who_is_disabled_in_the_directory_end(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop:
        slapd.modify(f"dn: {CAROL}\nchangetype: modify\nreplace: employeeType\nemployeeType: disabled\n")
        await check(cluster)
        await refused(laptop.get(f"{V1}/auth/me"), 401)


async def test_a_login_shows_at_once_who_is_disabled_in_the_directory(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop, cluster.client() as page:
        slapd.modify(f"dn: {CAROL}\nchangetype: modify\nreplace: employeeType\nemployeeType: disabled\n")
        assert "disabled in the directory" in (await refused(login(page, "carol"), 403))["reason"]
        await refused(laptop.get(f"{V1}/auth/me"), 401)


@pytest.mark.parametrize("shown_by", ["a look", "a login"])
async def test_who_has_left_the_directory_is_told_in_the_audit_log(
    slapd: Slapd, database_url: str, tmp_path: Path, shown_by: str
) -> None:
    (tmp_path / "key").write_text("a key of these tests")
    (tmp_path / "log").mkdir()
    kept = {"audit_folder": tmp_path / "log", "audit_key": tmp_path / "key"}
    settings = settings_of(slapd, **searching(tmp_path), ldap_disabled_filter="(employeeType=disabled)")
    async with (
        running_cluster(database_url, **settings, **kept) as cluster,
        await key_of(cluster, "carol") as laptop,
        await key_of(cluster, "chief") as other,
    ):
        slapd.modify(f"dn: {CAROL}\nchangetype: modify\nreplace: employeeType\nemployeeType: disabled\n")
        if shown_by == "a login":
            await refused(login(cluster.client(), "carol"), 403)
        await check(cluster)
        await refused(laptop.get(f"{V1}/auth/me"), 401)
        (line,) = await lines(cluster, action="user_departure")
        assert (line["user"], line["object"], line["result"]) == ("", "users/carol", "done")
        assert line["reason"] == "carol has left the directory, or is disabled there"
        ended = [(change["kind"], change["subject"]["user"], change["after"]) for change in line["changes"]]
        assert sorted(ended) == [("api_keys", "carol", None), ("logins", "carol", None)]
        await check(cluster)
        assert len(await lines(cluster, action="user_departure")) == 1, "who has nothing more is looked for no more"
        await ok(other.get(f"{V1}/auth/me"))


async def test_who_signs_in_with_the_name_of_one_who_left_shows_that(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop, cluster.client() as page:
        slapd.modify(f"dn: {CAROL}\nchangetype: delete\n")
        slapd.modify(f"dn: {CAROL}\n{ENTRY}")
        await refused(login(page, "carol"), 403)
        await refused(laptop.get(f"{V1}/auth/me"), 401)


async def test_accounts_of_before_are_bound_by_the_first_look(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop, await key_of(cluster, "chief") as other:
        await forget_entries(cluster)
        await cluster.settle()
        bound = {user["name"]: user["directory_id"] for user in await ok(cluster.admin.get(f"{V1}/users"))}
        assert bound["carol"]
        assert bound["chief"]
        await forget_entries(cluster)
        slapd.modify(f"dn: {CAROL}\nchangetype: delete\n")
        await check(cluster)
        await refused(laptop.get(f"{V1}/auth/me"), 401)
        await ok(other.get(f"{V1}/auth/me"))


async def test_a_directory_that_is_away_ends_nobodys_keys(cluster: Cluster, slapd: Slapd) -> None:
    async with await key_of(cluster, "carol") as laptop:
        slapd.stop()
        try:
            await check(cluster)
            (away,) = await ldap_check.look(cluster.settings)
        finally:
            slapd.start()
        await ok(laptop.get(f"{V1}/auth/me"))
    (back,) = await ldap_check.look(cluster.settings)
    assert (away.state, back.state) == (CheckState.FAIL, CheckState.OK)
    assert "Connection refused" in away.evidence


@pytest.mark.parametrize("asker", [None, f"uid=blind,{BASE}"])
async def test_a_directory_that_shows_the_site_nobody_ends_nobodys_keys(
    slapd: Slapd, database_url: str, tmp_path: Path, asker: str | None
) -> None:
    password = searching(tmp_path)["ldap_bind_password_file"] if asker else None
    settings = settings_of(slapd, ldap_bind_dn=asker, ldap_bind_password_file=password)
    async with running_cluster(database_url, **settings) as cluster, await key_of(cluster, "carol") as laptop:
        await check(cluster)
        await ok(laptop.get(f"{V1}/auth/me"))
        (told,) = await ldap_check.look(cluster.settings)
    assert told.state is CheckState.WARN
    assert "ldap_bind_dn" in told.hint


async def test_a_look_costs_a_few_questions_however_many_people_there_are(
    slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    search = directory._search

    def counted(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return search(*args, **kwargs)

    settings = Settings(**settings_of(slapd, **searching(tmp_path)))
    carol = await directory.person(settings, "carol", SECRET)
    assert carol
    monkeypatch.setattr(directory, "_search", counted)
    many = {f"user-{number}": f"00000000-0000-0000-0000-{number:012}" for number in range(250)}
    assert await directory.present(settings, many | {"carol": carol.entry_id}) == {"carol": carol.entry_id}
    assert len(asked) == 1 + 2 * 3


async def forget_entries(cluster: Cluster) -> None:
    """Let accounts be as they were before they were bound."""
    async with cluster.database.transaction() as db:
        await db.execute(update(User).values(directory_id=None))
