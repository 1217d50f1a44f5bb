#!/bin/sh
# Checks and measures on a CUDA device: sh gpu.sh RESULTS. Run it in the folder that `cargo xtask gpu` has filled.
set -u
out=${1:?say where the results go}
mkdir -p "$out"
here=$(dirname "$0")
failed=0
step() {
    name=$1 limit=$2
    shift 2
    echo "== $name: $*"
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || { echo "FAILED ($?)"; failed=1; }
    tail -n "${TAIL:-6}" "$out/$name.txt"
}
check="$here/gpu-check"
step info 30 "$check" info
step conform 300 "$check" conform 0 "${CONFORM_MAX:-16}"
step large 300 "$check" large 21 26
step memory 120 "$check" memory
for log in 3 10 14; do step pieces-$log 60 "$check" pieces $log; done
step faults 60 "$check" faults
TAIL=20 step proofs 120 "$check" proofs 4 18
for log in 17 20 22; do step full-$log 60 "$check" full $log dense; done
for log in 18 20; do step bits-$log 60 "$check" full $log boolean; done
TAIL=9 step stream-20 120 "$check" stream 20 dense 64 512 1024 2048 4096 8192 16384
TAIL=9 step stream-22 120 "$check" stream 22 dense 24 1024 2048 4096 8192 16384
TAIL=40 step ntt 60 "$check" ntt 16 26
TAIL=80 step msm 120 "$check" msm 16 24
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        PLIMSOLL_GPU_ARENA=1200 step $tool 200 compute-sanitizer --tool $tool --error-exitcode 9 "$check" pieces 4
    done
fi
exit $failed
