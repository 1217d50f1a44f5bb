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
step conform 300 "$check" conform 0 "${CONFORM_MAX:-20}"
step large 300 "$check" large 21 26
step memory 120 "$check" memory
TAIL=40 step ntt 60 "$check" ntt 16 26
TAIL=80 step msm 120 "$check" msm 16 24
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        step $tool 200 compute-sanitizer --tool $tool --error-exitcode 9 "$check" conform 0 4
    done
fi
exit $failed
