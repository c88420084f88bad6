"""Images of a cluster: a pod that only wants one is made, and what its machine says is the answer."""

from __future__ import annotations

import hashlib
from typing import Any

from appliance.agent.kubernetes import pod_frame, pods
from appliance.agent.kubernetes.capacity import Object
from appliance.agent.kubernetes.client import Client
from appliance.agent.kubernetes.pod_settings import PodSettings
from common import image_references
from common.errors import ConflictError, InputError, NotFoundError
from common.protocol import ImageState, ImageStatus

_CONTAINER = "image"
# no image has it: the pod ends as soon as its image is there
_COMMAND = ["/io.penstock/only-the-image"]


class Images:
    """The images of a cluster; the pods are the only memory of what is asked for."""

    def __init__(self, client: Client, pod_settings: PodSettings) -> None:
        """Prepare."""
        self._client = client
        self._pod_settings = pod_settings

    async def ask(self, reference: str) -> ImageState:
        """Return what is known of an image, after a pod that wants it was made.

        What came of it is told once; whoever asks again after it has the image pulled again, if it has gone. One of no
        registry of the site has failed. Raises PenstockError where the cluster does not answer or refuses the pod.
        """
        try:
            image_references.check(reference)
            image_references.check_registry(reference, self._pod_settings.registries)
        except InputError as error:
            return ImageState(reference=reference, status=ImageStatus.FAILED, error=str(error))
        name = f"penstock-image-{hashlib.sha256(f'{self._pod_settings.node}/{reference}'.encode()).hexdigest()[:16]}"
        path = f"{self._client.pods}/{name}"
        try:
            pod = await self._client.get(path)
        except NotFoundError:
            try:
                pod = await self._client.create(self._client.pods, self._pod(name, reference))
            except ConflictError as error:
                try:
                    pod = await self._client.get(path)
                except NotFoundError:
                    raise error from None
        state = state_of(pod, reference)
        if state.status is not ImageStatus.PULLING:
            await self._client.delete(path, 0)
        return state

    def _pod(self, name: str, reference: str) -> dict[str, Any]:
        container = {"name": _CONTAINER, "image": reference, "imagePullPolicy": "IfNotPresent", "command": _COMMAND}
        return pod_frame.pod(self._pod_settings, {"name": name}, {}, container)


def state_of(pod: Object, reference: str) -> ImageState:
    """Return what a pod tells of its image."""
    found = pod.get("status", {}).get("containerStatuses", [])
    told = next((item for item in found if item["name"] == _CONTAINER), None)
    if told is None:
        return ImageState(reference=reference, status=ImageStatus.PULLING)
    if digest := str(told.get("imageID", "")):
        return ImageState(reference=reference, status=ImageStatus.READY, digest=digest)
    if pods.runs_as_root(told["state"]):
        return ImageState(
            reference=reference,
            status=ImageStatus.FAILED,
            error="it runs as root, which pods of this cluster may not; name a user by its number in the image, or let "
            "the administrator set `run_as` or `pod_security` of the cluster",
        )
    if lacks := pods.NO_IMAGE.get(told["state"].get("waiting", {}).get("reason", "")):
        return ImageState(reference=reference, status=ImageStatus.FAILED, error=f"the cluster says that {lacks}")
    return ImageState(reference=reference, status=ImageStatus.PULLING)
