#!/bin/sh
# Checks and measures on a CUDA device: sh gpu.sh RESULTS [PART…], all parts if none is named. Run it in the folder that
# `cargo xtask gpu` has filled. Other provers are timed beside ours if their programs are there too (gpu-peers/README.md), and their
# proofs compared with ours, all bytes.
set -u
out=${1:?say where the results go}
shift
parts=${*:-checks cards command circom stream pile-up peers speed sanitizer}
mkdir -p "$out"
here=$(cd "$(dirname "$0")" && pwd)
check="$here/gpu-check"
# Large buffers go back to the kernel when they are freed, so that what the process has is what it uses.
export MALLOC_MMAP_THRESHOLD_=1048576
# In huge pages: points that pass through are read by this process for each proof, and vectors come and go.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
failed=0
step() {
    name=$1 limit=$2
    shift 2
    echo "== $name: $(basename "$1") $(shift && echo "$*")"
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || { echo "FAILED ($?)"; failed=1; }
    tail -n "${TAIL:-3}" "$out/$name.txt"
}
part() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }

if part checks; then
    step info 30 "$check" info
    step memory 120 "$check" memory
    for log in 3 10 14; do step pieces-$log 60 "$check" pieces $log; done
    step faults 60 "$check" faults
    TAIL=24 step conform 300 "$check" conform 0 "${CONFORM_MAX:-20}"
    TAIL=8 step large 300 "$check" large 21 26
    mkdir -p "$out/proofs"
    TAIL=28 step proofs 200 "$check" proofs 4 "${PROOFS_MAX:-20}" "$out/proofs"
    if [ -x "$here/peer-cuda" ]; then step bellperson 60 "$here/peer-cuda" --verify "$out/proofs"; fi
    step keys 60 "$check" keys 18
    step erased 60 "$check" erased 16
fi
if part cards; then TAIL=4 step cards 150 "$check" cards "${CARDS_LOG:-18}" "${CARDS_PROOFS:-96}"; fi
if part command && [ -x "$here/plimsoll" ]; then
    # The first run makes the key and caches it.
    export XDG_CACHE_HOME="$out/cache"
    head -c "${LETTER_BYTES:-8192}" /dev/urandom >"$out/letter"
    TAIL=40 step doctor 30 "$here/plimsoll" doctor --backend cuda
    for backend in cuda cuda cpu; do
        TAIL=40 step "prove-$backend" 200 "$here/plimsoll" prove "$out/letter" --backend $backend --device-memory 4GiB --memory 16GiB \
            --trace "$out/letter-$backend.jsonl" --sample-ms 20
        step "verify-$backend" 60 "$here/plimsoll" verify "$out/letter.proof.json" --file "$out/letter"
    done
    echo "== refused: too little of the device's memory"
    if "$here/plimsoll" prove "$out/letter" --backend cuda --device-memory 60MiB >"$out/refused.txt" 2>&1; then failed=1; fi
    tail -n 3 "$out/refused.txt"
    rm -rf "$out/cache"
    # What NVIDIA's driver said of the cards meanwhile: the name, and the most that this process had.
    for figure in device0_total_bytes device0_own_bytes; do
        most=$(sed -n "s/.*\"$figure\":\([0-9]*\).*/\1/p" "$out/letter-cuda.jsonl" | sort -n | tail -n 1)
        echo "$figure at most: ${most:-not told}"
        [ -n "$most" ] || failed=1
    done
fi
if part circom; then
    export XDG_CACHE_HOME="$out/cache"
    ls "$here"/circom/*.zkey >/dev/null 2>&1 || { echo "FAILED: no keys of circom's in $here/circom"; failed=1; }
    for zkey in "$here"/circom/*.zkey; do
        [ -e "$zkey" ] || continue
        key=$(basename "$zkey" .zkey)
        wtns="$here/circom/$key-0.wtns"
        step "circom-$key" 90 "$check" circom "$zkey" "$wtns"
        step "vkey-$key" 30 "$here/plimsoll" setup convert "$zkey" --to verification-key --output "$out/$key.vkey.json"
        for backend in cuda cpu; do
            TAIL=30 step "prove-$key-$backend" 90 "$here/plimsoll" prove --zkey "$zkey" --wtns "$wtns" --backend $backend \
                --memory 16GiB --device-memory 4GiB --output "$out/$key-$backend"
            step "verify-$key-$backend" 30 "$here/plimsoll" verify --vkey "$out/$key.vkey.json" \
                --public "$out/$key-$backend/public.json" --proof "$out/$key-$backend/proof.json"
        done
        cmp "$out/$key-cuda/public.json" "$out/$key-cpu/public.json" || failed=1
    done
    rm -rf "$out/cache"
fi
if part stream; then
    TAIL=13 step stream-20 200 "$check" stream 20 dense 64 384 512 1024 2048 4096 8192 16384 2048p 4096p 8192p 16384p
    TAIL=9 step stream-22 250 "$check" stream 22 dense 24 1024 2048 4096 8192 16384 4096p 16384p
fi
if part pile-up; then TAIL=5 step pile-up 200 "$check" pile-up 20 dense 192 512; fi
if part peers; then
    for circuit in "17 dense" "18 boolean" "18 sha256" "20 dense" "20 boolean" "20 sha256" "22 dense"; do
        # Two words.
        # shellcheck disable=SC2086
        set -- $circuit
        rounds=5
        if [ "$1" = 22 ]; then rounds=3; fi
        step "full-$1-$2" 90 "$check" full "$1" "$2"
        ls "$here"/peer-* >/dev/null 2>&1 || continue
        step "key-$1-$2" 90 "$check" key "$1" "$2" "$out/key.params"
        for peer in "$here"/peer-*; do
            TAIL=1 step "$(basename "$peer")-$1-$2" 150 "$peer" "$out/key.params" "$1" "$2" $rounds
        done
        proofs=$(sed -n 's/.*; proof \([0-9a-f]*\)$/\1/p' "$out"/*-"$1-$2".txt)
        echo "$1 $2: $(echo "$proofs" | wc -l) proofs of $(echo "$proofs" | awk '{ print length($0) / 2; exit }') bytes," \
            "$(echo "$proofs" | sort -u | wc -l) of them different"
        rm -f "$out"/key.params*
    done
fi
if part speed; then
    TAIL=40 step ntt 60 "$check" ntt 16 26
    TAIL=80 step msm 120 "$check" msm 16 24
fi
if part sanitizer && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        PLIMSOLL_GPU_ARENA=1200 step $tool 200 compute-sanitizer --tool $tool --error-exitcode 9 "$check" pieces 4
        # Whole proofs, erasing and streams of them among it.
        PLIMSOLL_GPU_ARENA=600 step $tool-proofs 250 compute-sanitizer --tool $tool --error-exitcode 9 "$check" proofs 4 4
    done
    PLIMSOLL_GPU_ARENA=600 step memcheck-stream 250 compute-sanitizer --tool memcheck --error-exitcode 9 "$check" stream 8 dense 16 200
    PLIMSOLL_GPU_ARENA=600 step memcheck-erased 250 compute-sanitizer --tool memcheck --error-exitcode 9 "$check" erased 6
fi
exit $failed
