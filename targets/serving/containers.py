"""Container files: each pins its image, runs as an ordinary user, says when it is healthy.  They are not built here."""

from __future__ import annotations

TRITON_IMAGE = "nvcr.io/nvidia/tritonserver:26.09-py3"
TENSORFLOW_TRITON_IMAGE = "nvcr.io/nvidia/tritonserver:25.02-py3"
"""The last one with Triton's TensorFlow backend: build.py of triton-inference-server/server builds none since."""
TORCHSERVE_IMAGE = "docker.io/pytorch/torchserve:0.12.0-cpu"

BENTOML_IMAGE = "docker.io/library/python:3.12-slim"
BENTOML = "1.4.40"
RUNTIME = "numpy==2.4.6 onnxruntime==1.31.1"
TORCHSERVE_ONNXRUNTIME, TORCHSERVE_OPSET = "1.19.2", 21
"""The last one for Python 3.9, which the image has (pytorch/serve, docker/Dockerfile), and the last opset it loads."""
TORCHSERVE_RUNTIME = f"numpy==1.26.4 onnxruntime=={TORCHSERVE_ONNXRUNTIME}"


def triton_containerfile(image: str = TRITON_IMAGE) -> str:
    """For a folder with ``repository/`` in it."""
    return f"""FROM {image}
COPY --chown=1000:1000 repository /models
USER 1000:1000
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --start-period=60s CMD ["curl", "--fail", "--silent", "localhost:8000/v2/health/ready"]
CMD ["tritonserver", "--model-repository=/models", "--strict-readiness=true", "--disable-auto-complete-config"]
"""


def torchserve_containerfile() -> str:
    """For a folder with ``model-store/`` and ``config.properties`` in it."""
    return f"""FROM {TORCHSERVE_IMAGE}
COPY --chown=model-server:model-server model-store ./model-store
COPY --chown=model-server:model-server config.properties ./config.properties
RUN pip install --no-cache-dir {TORCHSERVE_RUNTIME}
USER model-server
EXPOSE 8080
HEALTHCHECK --interval=10s --start-period=60s \\
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8080/ping')"]
CMD ["torchserve", "--start", "--foreground", "--disable-token-auth", "--ts-config", "config.properties"]
"""


def bentoml_containerfile() -> str:
    """For a folder with ``service/`` in it."""
    return f"""FROM {BENTOML_IMAGE}
RUN pip install --no-cache-dir bentoml=={BENTOML} {RUNTIME}
COPY --chown=1000:1000 service /srv/service
ENV BENTOML_HOME=/tmp/bentoml
USER 1000:1000
WORKDIR /srv/service
EXPOSE 3000
HEALTHCHECK --interval=10s --start-period=60s \\
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:3000/readyz')"]
CMD ["bentoml", "serve", "service:Model", "--port", "3000"]
"""
