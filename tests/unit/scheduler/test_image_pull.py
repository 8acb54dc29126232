"""What the pod that brings a driver's images says of them."""

from typing import Any

import msgspec

from libs.rollout.views.machine import ImagePull
from services.scheduler.resources import Pod
from services.scheduler.snapshot.pod_view import image_pull

REFUSED = {"waiting": {"reason": "ErrImagePull", "message": "connection refused"}}
ENDED = {"terminated": {"exitCode": 0}}


def pull(**states: dict[str, Any]) -> ImagePull | None:
    """Return the view of a pod whose containers are in these states, by name."""
    statuses = [
        {
            "name": name.replace("_", "-"),
            "imageID": "sha256:1" if state is ENDED else "",
            "state": state,
        }
        for name, state in states.items()
    ]
    labels = {"sluice.dev/image-of": "driver"}
    pod = {"metadata": {"name": "p", "labels": labels}, "status": {"containerStatuses": statuses}}
    return image_pull([msgspec.convert(pod, Pod)])


def test_an_image_that_cannot_be_pulled_is_told_from_that_of_the_way_back() -> None:
    trouble = "ErrImagePull: connection refused"
    first = pull(image_1=REFUSED, last_good_1=ENDED)
    assert first == ImagePull(label="driver", trouble=trouble)
    back = pull(image_1=ENDED, last_good_1=REFUSED)
    assert back == ImagePull(label="driver", trouble=trouble, is_way_back=True)
    assert pull(image_1=ENDED, last_good_1=ENDED) == ImagePull(label="driver", present=True)
