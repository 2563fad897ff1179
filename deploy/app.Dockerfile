# Tuner and dashboard: the light install, without torch. Build from the repository's root:
#   docker build -f deploy/app.Dockerfile -t slotune-app .
FROM docker.io/library/python:3.11-slim-bookworm
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/slotune
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY engine ./engine
COPY tuner ./tuner
COPY storage ./storage
COPY dashboard ./dashboard
RUN python3 -m pip install --quiet -c requirements.lock '.[postgres]'
RUN useradd --system --create-home slotune
USER slotune
EXPOSE 8501
ENTRYPOINT ["tuner"]
CMD ["--help"]
