"""The README of a package: what lies in it, how a server starts with it, how to see that it answers right."""

from __future__ import annotations

from convertkit.targets.serving.configuration import Serving


def triton_page(serving: Serving, why_no_batch: str, has_golden: bool) -> str:
    """For a Triton model repository; ``why_no_batch`` is empty where requests are put together."""
    batches = (
        f"Up to {serving.max_batch} requests go into one call; that two samples in a call do not change each other's\n"
        "answers was measured when this was made."
        if serving.max_batch
        else f"Requests are not put into one call: {why_no_batch or 'it was asked for'}."
    )
    return f"""# {serving.name} for Triton Inference Server

| file | what |
|---|---|
| `repository/{serving.name}/config.pbtxt` | names, types and sizes of inputs and outputs; batches; a first call |
| `repository/{serving.name}/1/model.onnx` | the model, for the `{serving.backend}` backend |
{"| `golden/` | a request and what the server has to answer |" if has_golden else ""}
| `Containerfile` | a server with this model |

{batches}

    tritonserver --model-repository=repository --disable-auto-complete-config
{_asking(serving.name, has_golden)}"""


def _asking(name: str, has_golden: bool) -> str:
    if not has_golden:
        return ""
    return f"""
Ask it, and compare the answer's `data` with that of `golden/response.json`:

    curl --data @golden/request.json localhost:8000/v2/models/{name}/infer
"""


def kserve_page(name: str, storage_uri: str) -> str:
    """For a Triton repository that KServe deploys."""
    return f"""# {name} for KServe

| file | what |
|---|---|
| `inferenceservice.yaml` | the resource, for KServe's Triton runtime and version 2 of the protocol |
| `repository/` | the model repository: copy what is in it to `{storage_uri}` |
| `golden/` | a request and what the service has to answer, where the protocol has JSON for its types |

    kubectl apply --filename inferenceservice.yaml
    curl --data @golden/request.json --header "Host: HOST" INGRESS/v2/models/{name}/infer
"""


def torchserve_page(name: str) -> str:
    """For a model archive."""
    return f"""# {name} for TorchServe

| file | what |
|---|---|
| `model-store/{name}.mar` | the model, and a handler that runs it in ONNX Runtime |
| `config.properties` | addresses, the model to load |
| `golden/` | a request and what the server has to answer |
| `Containerfile` | a server with this model |

    torchserve --start --disable-token-auth --ts-config config.properties
    curl --header "Content-Type: application/json" --data @golden/request.json localhost:8080/predictions/{name}

Requests and answers are the JSON of the Open Inference Protocol, version 2.
"""


def bentoml_page(name: str) -> str:
    """For the folder of a service."""
    return f"""# {name} for BentoML

| file | what |
|---|---|
| `service/service.py` | the service, and `bentofile.yaml` for `bentoml build` |
| `service/onnx_model.py` | runs the model in ONNX Runtime |
| `service/model.onnx` | the model |
| `golden/` | a request and what the server has to answer |
| `Containerfile` | a server with this model |

    pip install bentoml numpy onnxruntime
    bentoml serve service:Model --working-dir service --port 3000
    curl --header "Content-Type: application/json" --data @golden/request.json localhost:3000/v2/models/{name}/infer

Requests and answers are the JSON of the Open Inference Protocol, version 2.
"""
