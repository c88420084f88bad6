"""One setting, few homes: a service's model has key, type, range and default; roles and pages repeat none of it."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, ValidationError

from api.settings import Settings as ApiSettings
from appliance.agent.settings import Settings as AgentSettings
from appliance.site import inventory
from appliance.site.gpu import SharedGpus
from appliance.site.kubernetes import KubernetesCluster
from appliance.site.model import Node, SimulatedGpus, Site
from common.settings import environment
from common.settings.control_api import ControlApiSettings
from common.settings.edge import EdgeSettings
from common.settings.kubernetes import KubernetesSettings
from common.settings.logs import LogSettings
from common.settings.node_agent import GpuSettings, LocationSettings, SimulatedGpuSettings
from common.settings.package_index import PackageIndexSettings
from tools import settings_page

ROOT = Path(__file__).parents[2]
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "inventory/example/site.yml").read_text())


class Service(NamedTuple):
    """A service of ours: its role, the model of its settings, the file that the role writes, folders of its code."""

    role: str
    model: type[environment.ServiceSettings]
    file: str
    code: tuple[str, ...]


API = Service("control_api", ApiSettings, "etc/penstock/api.env", ("api",))
AGENT = Service("node_agent", AgentSettings, "etc/penstock/agent.env", ("appliance/agent", "appliance/gpu"))
SERVICES = pytest.mark.parametrize("service", [API, AGENT], ids=lambda service: service.role)
HOMES = [
    ("control_api", ApiSettings),
    ("node_agent", AgentSettings),
    ("package_index", PackageIndexSettings),
    ("edge", EdgeSettings),
    ("logs", LogSettings),
]


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def keys(value: Any) -> Iterator[str]:
    """Every key of a document, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)


def written(service: Service, settings: dict[str, Any]) -> str:
    """The file that a role writes for a dictionary of settings."""
    ansible = Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False)
    ansible.filters |= {"combine": lambda first, second: {**first, **second}, "to_json": json.dumps}
    role = service.role
    variables: dict[str, Any] = load(f"roles/{role}/defaults/main.yml")
    own = {
        name: ansible.from_string(text).render(variables)
        for name, text in load(f"roles/{role}/vars/main.yml")[f"{role}_own_settings"].items()
    }
    template = (ROOT / f"roles/{role}/templates/{service.file}.j2").read_text()
    variables |= {f"{role}_certificate_digest": "0", f"{role}_own_settings": own, f"{role}_settings": settings}
    return ansible.from_string(template).render(variables)


def as_systemd_reads(text: str) -> dict[str, str]:
    """The variables of an environment file: in double quotes a backslash spares one of four characters."""
    lines = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    assert all(value[0] == value[-1] == '"' for _, _, value in lines), text
    return {name: re.sub(r'\\(["\\`$])', r"\1", value[1:-1]) for name, _, value in lines}


def read(service: Service, settings: dict[str, Any]) -> Any:
    return environment.load(service.model, as_systemd_reads(written(service, settings)), file=service.file)


@pytest.mark.parametrize(("role", "model"), HOMES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_role_takes_one_dictionary_and_names_no_setting(role: str, model: type[BaseModel]) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert options[f"{role}_settings"].keys() <= {"type", "description", "required"}
    assert options[f"{role}_settings"]["type"] == "dict"
    assert load(f"roles/{role}/defaults/main.yml")[f"{role}_settings"] == {}
    homes = [load(f"roles/{role}/defaults/main.yml"), options, load(f"inventory/group_vars/all/{role}.yml")]
    named = {key.removeprefix(f"{role}_") for home in homes for key in keys(home)}
    assert not named & set(model.model_fields)


@SERVICES
def test_no_role_spells_a_variable_of_a_service(service: Service) -> None:
    prefix = str(service.model.model_config["env_prefix"])
    files = [path for path in (ROOT / "roles").rglob("*") if path.is_file()]
    spelt = {
        f"{path.relative_to(ROOT)}: {variable}"
        for path in files
        for variable in re.findall(rf"{prefix}[A-Z_]+", path.read_text(errors="replace"))
    }
    # commands of the role reach the database before the service has its file
    assert spelt <= {"roles/control_api/vars/main.yml: PENSTOCK_API_DATABASE_URL"}


@SERVICES
def test_what_a_role_sets_by_itself_is_known_to_the_service_and_no_choice_of_the_site(service: Service) -> None:
    own = set(load(f"roles/{service.role}/vars/main.yml")[f"{service.role}_own_settings"])
    chosen = {name for part in settings_page.PARTS for name in part.model.model_fields}
    assert own <= set(service.model.model_fields) - chosen


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        (SharedGpus, GpuSettings),
        (SimulatedGpus, SimulatedGpuSettings),
        (KubernetesCluster, KubernetesSettings),
        (Node, LocationSettings),
    ],
)
def test_the_site_embeds_the_settings_and_says_none_again(part: type[BaseModel], settings: type[BaseModel]) -> None:
    assert issubclass(part, settings)
    again = set(settings.model_fields) & set(part.__annotations__)
    assert again <= {"kubernetes_api"}, "a cluster without an address is none, so there it has no default"


def test_the_site_embeds_whole_services() -> None:
    assert issubclass(ApiSettings, ControlApiSettings)
    for name, annotation in {
        "control_api": ControlApiSettings,
        "package_index": PackageIndexSettings,
        "edge": EdgeSettings,
        "logs": LogSettings,
    }.items():
        assert Site.model_fields[name].annotation is annotation


def test_the_file_of_a_role_says_what_the_site_says() -> None:
    chosen = {
        "metrics_keep_s": 0.5,
        "price_currency": "KRW",
        "price_gpu_hour": 2.1,
        "price_gpu_hour_of": {"NVIDIA H200": "3.25"},
        "gang_networks": "10.9.0.0/16",
        "ldap_url": "ldaps://directory",
        "ldap_search_base": 'ou="Ops \\ Söhne", $HOME `id`',
        "ldap_search_filter": "(&(uid={name})(cn=\\2a))",
    }
    site = Site.model_validate(deepcopy(EXAMPLE) | {"control_api": chosen, "session_host_paths": ["/mnt", "/data"]})
    built = inventory.build(site, version="1.2.3")["all"]
    api = read(API, built["vars"]["site_control_api"])
    assert (api.ldap_search_base, api.ldap_search_filter) == (chosen["ldap_search_base"], chosen["ldap_search_filter"])
    assert (api.host_paths, api.pvc_root, api.metrics_keep_s) == (("/mnt", "/data"), "/srv/shared", 0.5)
    assert (str(api.gang_networks), api.apps_url) == ("10.9.0.0/16", "https://10.71.8.10:9443")
    assert str(api.socket) == "/run/penstock-api/api.sock"
    prices = (api.price_currency, api.price_gpu_hour, api.price_gpu_hour_of)
    assert prices == ("KRW", Decimal("2.1"), {"NVIDIA H200": Decimal("3.25")})


@pytest.mark.parametrize("prices", [{"price_currency": "EUR"}, {"price_core_hour": 1}])
def test_prices_and_their_currency_go_together(prices: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="price_currency and prices go together"):
        ControlApiSettings(**prices)


def test_the_file_of_an_agent_says_what_the_site_says_of_its_node() -> None:
    nodes = deepcopy(EXAMPLE["nodes"])
    nodes[1]["simulated_gpus"]["model"] = 'The "5" µGPU'
    nodes[2].pop("simulated_gpus")
    nodes[2]["kubernetes"] = {"api": "https://k:6443", "claims": {"/srv/shared": "volumes"}, "machines": {"pool": "a"}}
    site = Site.model_validate(deepcopy(EXAMPLE) | {"nodes": nodes, "node_agent": {"port_range": "40000-40010"}})
    hosts = inventory.build(site, version="1.2.3")["all"]["hosts"]
    machine, cluster = (read(AGENT, hosts[name]["node_settings"]) for name in ("worker1", "worker2"))
    assert (machine.name, machine.allowed, machine.port) == ("worker1", ("master1",), 6001)
    assert (machine.simulated_gpus, machine.simulated_gpu_model) == (4, 'The "5" µGPU')
    assert (machine.port_range, machine.mount_roots) == ((40000, 40010), (Path("/srv/shared"),))
    assert machine.enforcement == EXAMPLE["gpu"]["enforcement"]
    assert cluster.kubernetes_claims == {"/srv/shared": "volumes"}
    assert (cluster.kubernetes_machines, cluster.mount_roots) == ({"pool": "a"}, ())


def test_the_page_of_settings_is_what_the_models_say() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    assert page == settings_page.page(), "write it anew: `python -m tools.settings_page`"


def test_every_choice_is_explained() -> None:
    fields = [(name, field) for part in settings_page.PARTS for name, field in part.model.model_fields.items()]
    assert len(fields) > 50
    assert not [name for name, field in fields if not field.description]


def owner(node: ast.expr) -> str:
    """The last name of an expression: that of `self._settings` and of `_settings(request)` is `_settings`."""
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Call(function):
            return owner(function)
    return ""


def reads(service: Service) -> Iterator[str]:
    """Attributes of settings that the code of a service reads, in properties of the settings themselves too."""
    for path in (path for folder in service.code for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and owner(node.value).endswith("settings"):
                yield node.attr
    for node in ast.walk(ast.parse(inspect.getsource(service.model))):
        if isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
            yield from (inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute))


@SERVICES
def test_every_setting_is_read_somewhere_in_its_service(service: Service) -> None:
    unread = set(service.model.model_fields) - set(reads(service))
    assert not unread, "read it as `settings.NAME`, or remove it"


def test_the_role_of_the_package_index_reads_every_setting_of_it() -> None:
    texts = [path.read_text() for path in (ROOT / "roles/package_index/templates").rglob("*.j2")]
    told = {name for text in texts for name in re.findall(r"package_index_settings\.(\w+)", text)}
    assert told == set(PackageIndexSettings.model_fields)


def test_the_role_of_the_edge_reads_every_setting_of_it() -> None:
    texts = [path.read_text() for path in (ROOT / "roles/edge/templates").rglob("*.j2")]
    told = {name for text in texts for name in re.findall(r"edge_settings\.(\w+)", text)}
    assert told == set(EdgeSettings.model_fields)


def test_roles_read_every_setting_of_logs() -> None:
    files = [*(ROOT / "roles/logs/templates").rglob("*.j2"), *(ROOT / "inventory/group_vars/all").glob("*.yml")]
    told = {name for file in files for name in re.findall(r"(?:logs_settings|site_logs)\.(\w+)", file.read_text())}
    assert told == set(LogSettings.model_fields)


def test_other_pages_name_no_variable_that_is_none() -> None:
    known = {
        f"{service.model.model_config['env_prefix']}{name.upper()}"
        for service in (API, AGENT)
        for name in service.model.model_fields
    }
    named = {
        variable
        for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
        for variable in re.findall(r"PENSTOCK_(?:API|AGENT)_[A-Z_]+[A-Z]", page.read_text())
    }
    assert named <= known


def test_a_site_is_read_without_what_reads_environments() -> None:
    code = "import sys, appliance.site.model, appliance.site.inventory; print('pydantic_settings' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
