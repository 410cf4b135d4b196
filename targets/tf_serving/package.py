"""The files around the SavedModel: requests of the REST API, a container file, a page."""

from __future__ import annotations

import json
from collections.abc import Mapping

from convertkit.artifact import Array

MODELS = "models"
_IMAGE = "docker.io/tensorflow/serving:2.20.0"


def rest_request(inputs: Mapping[str, Array]) -> str:
    """The body of a predict request in columns.  Source: TensorFlow Serving, RESTful API, ``inputs``."""
    return json.dumps({"signature_name": "serving_default", "inputs": _plain(inputs)}) + "\n"


def rest_response(outputs: Mapping[str, Array]) -> str:
    """The answer; a single output stands without its name."""
    told = _plain(outputs)
    return json.dumps({"outputs": next(iter(told.values())) if len(told) == 1 else told}) + "\n"


def _plain(arrays: Mapping[str, Array]) -> dict[str, object]:
    return {name: value.tolist() for name, value in arrays.items()}


def containerfile(name: str) -> str:
    """For a folder with ``models/`` in it."""
    return f"""FROM {_IMAGE}
COPY --chown=1000:1000 {MODELS} /models
ENV MODEL_NAME={name}
USER 1000:1000
EXPOSE 8500 8501
HEALTHCHECK --interval=10s --start-period=60s CMD ["bash", "-c", "exec 3<>/dev/tcp/localhost/8501"]
"""


def page(name: str) -> str:
    """What lies in the folder, and how it is served."""
    return f"""# {name} for TensorFlow Serving

| file | what |
|---|---|
| `{MODELS}/{name}/1` | the SavedModel, of plain TensorFlow operators, with warm-up requests |
| `golden/` | a request of the REST API and what the server has to answer |
| `Containerfile` | a server with this model |

    tensorflow_model_server --rest_api_port=8501 --model_name={name} --model_base_path=$PWD/{MODELS}/{name}
    curl --data @golden/request.json localhost:8501/v1/models/{name}:predict
"""
