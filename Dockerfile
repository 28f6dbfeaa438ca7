# The worker: python:3.11-slim and dependencies pinned by hash, not root.
# The index of all its platforms, of August 2026 (Python 3.11.16, Debian 13); docs/operating.md says how to renew it.
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS base

FROM base AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/orga
WORKDIR /src
COPY requirements-worker.lock ./
RUN /opt/orga/bin/pip install --no-deps --require-hashes --requirement requirements-worker.lock
COPY pyproject.toml README.md LICENSE worker.py ./
COPY orga orga
COPY workflows workflows
COPY activities activities
COPY client client
RUN /opt/orga/bin/pip install --no-deps --no-build-isolation .

FROM base

ENV PATH=/opt/orga/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# File tools are rooted where the worker starts: a folder of its own, with nothing in it but what is mounted there.
RUN useradd --uid 10001 --create-home orga && install --directory --owner=orga /workspace
COPY --from=build /opt/orga /opt/orga
USER 10001
WORKDIR /workspace
ENTRYPOINT ["orga-worker"]
