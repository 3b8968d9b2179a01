# One image for all processes: API (the default), workers, MCP server, consumers, migrations. docs/operations/deploy.md.
ARG PYTHON=docker.io/library/python:3.13-slim-bookworm

FROM ${PYTHON} AS packages
WORKDIR /build
COPY requirements/base.txt requirements/sbom.txt requirements/
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/base.txt \
 && python -m venv /tools \
 && /tools/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/sbom.txt \
 && /tools/bin/cyclonedx-py environment --output-reproducible --output-file /venv/sbom.json /venv/bin/python

FROM ${PYTHON}
LABEL org.opencontainers.image.title="Accessa"
# libGL and glib are OpenCV's, for OCR.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libgl1 libglib2.0-0 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin accessa \
 && install -d -o accessa -m 0700 /var/lib/accessa
COPY --from=packages /venv /venv
COPY . /srv/accessa
# Compiled here: the root file system is read-only where the image runs.
RUN python -m compileall -q -j 0 /srv/accessa
WORKDIR /srv/accessa
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    ACCESSA_VAR=/var/lib/accessa \
    LOG_FORMAT=json
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["gunicorn", "accessa.wsgi:application", "-c", "python:accessa.server.gunicorn_conf", "--bind", "0.0.0.0:8000"]
