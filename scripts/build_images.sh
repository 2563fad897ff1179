#!/usr/bin/env bash
# Builds both images with whatever builder this machine has (docker, podman or buildah) and starts
# each one's --help; in the engine's, the fused kernels must compile. Arguments are passed to the
# builder: build_images.sh --build-arg NAME=VALUE
set -euo pipefail
cd "$(dirname "$0")/.."

if docker info >/dev/null 2>&1; then
  build() { docker build "$@"; }
  start() { docker run --rm --entrypoint "$2" "$1" "${@:3}" >/dev/null; }
elif command -v podman >/dev/null; then
  build() { podman build "$@"; }
  start() { podman run --rm --entrypoint "$2" "$1" "${@:3}" >/dev/null; }
elif command -v buildah >/dev/null; then
  build() { buildah bud --isolation chroot "$@"; }
  start() {  # IMAGE PROGRAM ARGUMENT...
    local container
    container=$(buildah from --pull-never "localhost/$1")
    buildah run --isolation chroot "$container" -- "${@:2}" >/dev/null
    buildah rm "$container" >/dev/null
  }
else
  echo "no image builder here: install docker, podman or buildah" >&2
  exit 2
fi

for image in engine app; do
  echo "-- building slotune-$image"
  build "$@" -f "deploy/$image.Dockerfile" -t "slotune-$image:0.1.0" .
done
start slotune-engine:0.1.0 engine --help
start slotune-engine:0.1.0 python3 -c \
  "from engine.kernels import build; assert build.load(), 'the fused kernels do not compile'"
start slotune-app:0.1.0 tuner --help
start slotune-app:0.1.0 dashboard --help
echo "-- both images build and start"
