#!/bin/sh
# Builds azq's image from this checkout: build.sh [IMAGE] [option of the builder ...]. docker, podman or buildah, whichever is here.
# With a compiler, for `compile` on GPUs: build.sh azq:0.1.0-gpu --target gpu.
# Both kinds of machines at once: build.sh registry.example/azq:0.1.0 --platform linux/amd64,linux/arm64 --push (docker buildx).
set -eu
cd "$(dirname "$0")/../.."
image=${1:-azq:$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' azq/__init__.py)}
[ $# -eq 0 ] || shift
if docker buildx version >/dev/null 2>&1; then
    builder="docker buildx build --load"
    case " $* " in *" --push "*) builder="docker buildx build" ;; esac
elif command -v podman >/dev/null; then
    builder="podman build --ignorefile ops/containers/Containerfile.dockerignore"
elif command -v buildah >/dev/null; then
    builder="buildah build --ignorefile ops/containers/Containerfile.dockerignore"
else
    echo "no docker with buildx, no podman and no buildah here; install one of them" >&2
    exit 2
fi
# shellcheck disable=SC2086 # a command and its options
exec $builder --file ops/containers/Containerfile --tag "$image" "$@" .
