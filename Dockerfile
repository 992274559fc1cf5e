# podgpu's images: `runtime` for clusters, and `demo`, which is runtime with the compiler that the simulated node needs.
#
#     docker build --target runtime --tag podgpu .
#
# PYTHON_IMAGE must have glibc (NVIDIA's libraries need it) and Python 3.11 or newer; pin it by digest where images are
# released. `make image` builds both on a base made of Debian packages, without a registry.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS builder
# Such as --no-index --find-links=/wheels, where packages come from a folder.
ARG PIP_OPTIONS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements.txt requirements-build.txt ./
# The environment that is shipped has no pip in it; the one beside it installs into it.
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/podgpu
# hadolint ignore=SC2086
RUN tools/bin/pip --python /opt/podgpu/bin/python3 install ${PIP_OPTIONS} --require-hashes --only-binary :all: -r requirements.txt \
    && tools/bin/pip install ${PIP_OPTIONS} --require-hashes -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY podresources podresources
COPY exporter exporter
COPY enforcer enforcer
COPY simulator simulator
RUN tools/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir dist . \
    && tools/bin/pip --python /opt/podgpu/bin/python3 install --no-index --no-deps dist/*.whl

FROM ${PYTHON_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="podgpu" \
      org.opencontainers.image.description="GPU memory of Kubernetes pods on shared GPUs: measured for Prometheus, and held to caps" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /opt/podgpu /opt/podgpu
# What the NVIDIA runtime needs to know where the manifest does not say it; NVML and the MPS control command.
ENV PATH=/opt/podgpu/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility,compute
# Root, because the sockets of the kubelet and of MPS daemons are root's; without any capability that is enough.
# hadolint ignore=DL3002
USER 0:0
EXPOSE 9836 9837
# No init: every child is waited for, and with hostPID orphans of a managed MPS daemon go to the container runtime's
# shim, which reaps them.
ENTRYPOINT ["podgpu"]
CMD ["exporter"]

FROM runtime AS demo
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
# Nothing of a simulated node is root's.
USER 65534:65534
CMD ["demo"]
