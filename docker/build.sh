#!/usr/bin/env bash
# Build the worker's image: docker/build.sh [TAG] [docker build's options, such as --build-arg CUDA=12.8.1]
# It sends the Dockerfile, src/, examples/ and what else a wheel is made of to the builder, nothing else of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-mm32-verify:local}
shift || true
tar --create --exclude=__pycache__ docker/Dockerfile src examples docs/errors.md pyproject.toml hatch_build.py README.md LICENSE |
    docker build --file docker/Dockerfile --tag "$tag" "$@" -
