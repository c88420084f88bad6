"""What the API answers, as whole as its types want it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from appliance.client.views import (
    ApiKey,
    Container,
    Domain,
    Gpu,
    GpuShare,
    Group,
    Image,
    Node,
    Policy,
    Preset,
    Project,
    Session,
    User,
    Volume,
)

AGO = (datetime.now(UTC) - timedelta(hours=3, minutes=5)).isoformat()


def gpu_share(**changes: Any) -> GpuShare:
    base: GpuShare = {
        "index": 0,
        "uuid": "SIM-worker1-0",
        "milli": 500,
        "memory_mib": 8192,
        "model": "Lab GPU",
        "profile": "",
    }
    return cast("GpuShare", {**base, **changes})


def container(**changes: Any) -> Container:
    base: Container = {
        "rank": 0,
        "node": "worker1",
        "status": "running",
        "error": "",
        "exit_code": None,
        "enforcement": "none",
        "warning": "",
        "nccl": None,
        "gpus": [gpu_share()],
    }
    return cast("Container", {**base, **changes})


def session(**changes: Any) -> Session:
    base: Session = {
        "id": "5c7b",
        "name": "first",
        "project": "team-a",
        "user": "alice",
        "access": "project",
        "image": "python:3.11",
        "kind": "training",
        "priority": 50,
        "preemptible": True,
        "replicas": 1,
        "min_replicas": 0,
        "max_replicas": 0,
        "gpu_milli": 500,
        "cpu_milli": 0,
        "memory_mib": 4096,
        "shm_mib": 64,
        "disk_mib": 51200,
        "enforcement": "none",
        "held_milli": 500,
        "resize_milli": None,
        "preset": "",
        "group": "",
        "ports": [],
        "gpu_models": [],
        "within": "anywhere",
        "within_required": False,
        "p2p": None,
        "rdma": False,
        "local_image": False,
        "sandbox": "",
        "denied": 0,
        "created_by_cli": True,
        "state": "RUNNING",
        "reason": "",
        "cause": "",
        "position": 0,
        "attempt": 0,
        "command": ["python3"],
        "args": ["train.py", "--name=a b"],
        "environment": [],
        "mounts": [],
        "interrupted": "",
        "interrupted_at": None,
        "not_grown": "",
        "created_at": (datetime.now(UTC) - timedelta(seconds=125)).isoformat(),
        "starts_at": None,
        "scheduled_at": None,
        "started_at": "2026-01-02T03:04:05.678+00:00",
        "limit_s": 0,
        "expires_at": None,
        "extended_s": 0,
        "finished_at": None,
        "exit_code": None,
        "node": "worker1",
        "gpus": [gpu_share()],
        "containers": [container()],
        "services": [],
        "url": None,
        "urls": [],
    }
    return cast("Session", {**base, **changes})


def waiting(**changes: Any) -> Session:
    nowhere: dict[str, Any] = {"node": None, "gpus": [], "containers": [], "started_at": None, "held_milli": 0}
    return session(**{"name": "third", "state": "PENDING", "position": 1, **nowhere, **changes})


def project(**changes: Any) -> Project:
    base: Project = {
        "id": "1",
        "name": "team-a",
        "description": "",
        "domain": None,
        "quota_milli": 1000,
        "used_milli": 500,
        "over_quota": True,
        "over_quota_weight": None,
        "limit_milli": None,
        "had_milli": 0,
        "cpu_quota_milli": None,
        "cpu_limit_milli": None,
        "memory_quota_mib": None,
        "memory_limit_mib": None,
        "period": {"starts_at": "2026-01-02T03:04:05+00:00", "ends_at": None},
        "active": True,
        "on_expiry": "stop",
        "managers": [],
        "members": ["alice", "bob"],
        "training_group": None,
        "interactive_group": None,
        "interactive_limit_s": 0,
        "interactive_extension_s": 0,
        "min_runtime_s": None,
        "session_access": "project",
        "warnings": [],
        "created_at": AGO,
    }
    return cast("Project", {**base, **changes})


def volume(**changes: Any) -> Volume:
    base: Volume = {
        "id": "3f2b8a52-6b0c-4f8e-9a51-6f0b5e1d2c3a",
        "name": "data",
        "project": "team-a",
        "former_project": "",
        "domain": None,
        "storage": "shared",
        "folder": "3f2b8a52-6b0c-4f8e-9a51-6f0b5e1d2c3a",
        "state": "ready",
        "reason": "",
        "used_mib": 2048,
        "limit_mib": None,
        "measured_at": AGO,
        "sessions": 0,
        "created_by": "alice",
        "created_at": AGO,
    }
    return cast("Volume", {**base, **changes})


def group(**changes: Any) -> Group:
    base: Group = {
        "id": "1",
        "name": "v100",
        "description": "",
        "purpose": "training",
        "domain": None,
        "nodes": [],
        "present": ["worker1", "worker2"],
        "gpu_model": "V100",
        "switch": "",
        "region": "",
        "open": False,
        "users": ["alice"],
        "projects": ["team-b"],
        "created_at": AGO,
    }
    return cast("Group", {**base, **changes})


def image(**changes: Any) -> Image:
    base: Image = {
        "id": "1",
        "name": "python",
        "tag": "3.11",
        "reference": "reservoir:5000/penstock/python:3.11",
        "description": "",
        "visibility": "global",
        "projects": [],
        "status": "ready",
        "since": AGO,
        "error": "",
        "digest": "sha256:0",
        "size": 1,
        "created_by": "admin",
        "created_at": AGO,
    }
    return cast("Image", {**base, **changes})


def user(**changes: Any) -> User:
    base: User = {
        "id": "1",
        "name": "alice",
        "role": "member",
        "source": "local",
        "role_source": "local",
        "directory_id": None,
        "domain": None,
        "policy": None,
        "email": None,
        "language": None,
        "disabled": False,
        "must_change_password": False,
        "created_at": AGO,
    }
    return cast("User", {**base, **changes})


def preset(**changes: Any) -> Preset:
    base: Preset = {
        "name": "small",
        "description": "",
        "cpu_milli": 1000,
        "memory_mib": 4096,
        "shm_mib": 64,
        "gpu_milli": 0,
        "enforcement": "none",
    }
    return cast("Preset", {**base, **changes})


def policy(**changes: Any) -> Policy:
    base: Policy = {
        "name": "guests",
        "description": "",
        "max_sessions": 2,
        "max_gpu_milli": 1500,
        "max_cpu_milli": None,
        "max_memory_mib": 65536,
        "created_at": AGO,
    }
    return cast("Policy", {**base, **changes})


def domain(**changes: Any) -> Domain:
    base: Domain = {
        "name": "physics",
        "description": "",
        "quota_milli": None,
        "shares": False,
        "over_quota_weight": None,
        "limit_milli": None,
        "policy": None,
        "created_at": AGO,
    }
    return cast("Domain", {**base, **changes})


def api_key(**changes: Any) -> ApiKey:
    base: ApiKey = {
        "id": "key-7",
        "name": "ci",
        "prefix": "pk_ab",
        "scope": "all",
        "made_by": None,
        "created_at": AGO,
        "expires_at": None,
        "used_at": AGO,
    }
    return cast("ApiKey", {**base, **changes})


def node(**changes: Any) -> Node:
    base: Node = {
        "id": "1",
        "name": "worker1",
        "endpoint": "tcp://10.0.0.2:6001",
        "address": "10.0.0.2",
        "port": 6001,
        "region": "room-1",
        "switch": "leaf-1",
        "state": "ready",
        "mode": "active",
        "drain_until": None,
        "message": "",
        "missing_storages": {},
        "unhealthy": "",
        "withheld": "",
        "unknown_containers": 0,
        "orphaned_milli": {},
        "clock_offset_s": 0,
        "groups": ["v100"],
        "agent_version": "0.1.0",
        "engine_version": "20.10.24",
        "driver_version": "615.1",
        "cuda_version": "13.0",
        "os": "Debian 12",
        "enforcement": "none",
        "enforcement_pending": "",
        "fractions": True,
        "nvlink": False,
        "rdma": False,
        "no_rdma": "",
        "hcas": [],
        "interfaces": [],
        "interface": "",
        "cpu_milli": 2500,
        "memory_mib": 24064,
        "gpu_milli": 2000,
        "used_milli": 1250,
        "gpus": [gpu(used_milli=1000), gpu(index=1, uuid="SIM-2", used_milli=250)],
        "sessions": 2,
        "started_at": None,
        "last_seen": AGO,
    }
    return cast("Node", {**base, **changes})


def gpu(**changes: Any) -> Gpu:
    base: Gpu = {
        "index": 0,
        "uuid": "SIM-1",
        "model": "Lab GPU",
        "memory_mib": 16384,
        "simulated": True,
        "island": 0,
        "accelerator": "simulated",
        "enforcement": "none",
        "parent": "",
        "profile": "",
        "capacity_milli": 1000,
        "used_milli": 0,
    }
    return cast("Gpu", {**base, **changes})
