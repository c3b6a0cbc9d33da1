#!/usr/bin/env bash
# Run a worker: docker/run.sh STORE SCRIPTS [TAG]
# STORE: the store's folder, writable for user 10001. SCRIPTS: a folder with the references and candidates, read-only, under the
# same path in the container as here, since the jobs name paths.
#
# What the container itself denies: the network, root, capabilities, new privileges, writing outside of /tmp and the store. /tmp is
# memory, and executable: extensions are loaded from there.
#
# MM32_NAMESPACES=1 lets the tool make namespaces inside, so that candidates neither see nor signal the tool's processes. Docker's
# own filter forbids that; without the filter more of the kernel can be reached from inside.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
store=$(realpath "$1")
scripts=$(realpath "$2")
tag=${3:-mm32-verify:local}
inner=()
if [ "${MM32_NAMESPACES:-0}" = 1 ]; then
    inner=(--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined)
fi
exec docker run --rm --init \
    --gpus all \
    --network none \
    --user 10001:10001 \
    --cap-drop ALL \
    --security-opt no-new-privileges \
    "${inner[@]}" \
    --pids-limit 16384 \
    --read-only \
    --tmpfs /tmp:exec,mode=1777,size=32g \
    --tmpfs /home/worker:uid=10001,gid=10001,mode=0700 \
    --shm-size 8g \
    --volume "$store:$store" \
    --volume "$scripts:$scripts:ro" \
    "$tag" "$store"
