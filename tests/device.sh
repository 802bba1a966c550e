#!/usr/bin/env bash
# Everything that needs a GPU, in under 8 minutes on an H200: the kernels against the host's code, byte for
# byte, in CUDA graphs, under compute-sanitizer, and their times against the goals.
#
#   tests/device.sh                builds into build/device (cmake, nvcc, Catch2, Highway), then runs
#   tests/device.sh --build DIR    only builds, and puts what runs into DIR: on a machine without a GPU
#   tests/device.sh --from DIR     only runs what --build made, perhaps elsewhere; needs no compiler
#
# Exit code 0: all passed. A time that misses its goal is printed as MISSED and fails nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "device.sh: $*" >&2
  exit 1
}

needs_gpu() {
  command -v nvidia-smi >/dev/null || fail "no GPU here: there is no nvidia-smi; run this on a machine with an NVIDIA GPU and its driver"
  nvidia-smi -L 2>/dev/null | grep '^GPU ' >/dev/null || fail "no GPU here: nvidia-smi lists none"
}

# build DIR: the tests and libtaco_cuda.so, with the one library that a GPU machine may lack beside them.
build() {
  command -v cmake >/dev/null || fail "no cmake here; build elsewhere with --build DIR and run with --from DIR"
  [ -n "${CUDACXX:-}" ] || command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    fail "no nvcc here; put it on PATH, or build elsewhere with --build DIR and run with --from DIR"
  local folder=build/device log=build/device/build.log
  mkdir -p "$folder" "$1"
  local generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  # Without torch: the engine, cuda/ and the tests are all that it takes.
  if ! {
    cmake -S . -B "$folder" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DTACO_TORCH=OFF -DTACO_CUDA=ON &&
      cmake --build "$folder" -j "$(nproc)" --target cuda_entry_test cuda_nccl_api_test device_topk_test
  } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "the build failed; all of it is in $log"
  fi
  cp "$folder"/tests/cuda/{cuda_entry_test,cuda_nccl_api_test,device_topk_test} "$folder"/cuda/libtaco_cuda.so "$1/"
  local highway
  highway=$(ldd "$1/device_topk_test" | awk '$1 ~ /^libhwy\.so/ { print $3 }')
  [ -z "$highway" ] || cp -L "$highway" "$1/"
}

failed=()
# step TITLE COMMAND...: runs it, keeps going when it fails.
step() {
  local title=$1 started=$SECONDS
  shift
  echo "==== $title"
  if "$@"; then
    echo "---- passed, $((SECONDS - started)) s"
  else
    echo "---- FAILED ($?), $((SECONDS - started)) s"
    failed+=("$title")
  fi
}

run() {
  local folder
  folder=$(cd "$1" && pwd) || fail "$1 is not there"
  local file
  for file in cuda_entry_test cuda_nccl_api_test device_topk_test libtaco_cuda.so; do
    [ -e "$folder/$file" ] || fail "$folder has no $file; make it with tests/device.sh --build $1"
  done
  export TACO_CUDA_LIBRARY=$folder/libtaco_cuda.so
  export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

  step "the seam to NCCL" timeout 60 "$folder/cuda_nccl_api_test"
  step "the library's entry, and sums" timeout 60 "$folder/cuda_entry_test"
  step "TopK against the host, graphs" timeout 150 "$folder/device_topk_test" "~[times]" -d yes
  # Right kernels first: the sanitizers are slow, and only look at a part.
  local part="cuda topk: pointers*,cuda topk: inputs*,cuda topk: a gradient*,cuda topk: more equals*"
  part+=",cuda topk: with a few*,cuda topk: NaN*,cuda scatter-add: long*,cuda scatter-add: a broken*"
  if command -v compute-sanitizer >/dev/null; then
    local tool
    for tool in memcheck racecheck synccheck; do
      step "compute-sanitizer $tool" timeout 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$folder/device_topk_test" "$part"
    done
  else
    echo "==== compute-sanitizer is not here: its checks are left out"
  fi
  step "times" timeout 100 "$folder/device_topk_test" "[times]"

  if [ ${#failed[@]} -gt 0 ]; then
    printf -v all '%s; ' "${failed[@]}"
    fail "${#failed[@]} of the steps failed: ${all%; }"
  fi
  echo "device.sh: all passed in $SECONDS s"
}

case ${1:-} in
  "")
    needs_gpu
    build build/device/run
    run build/device/run
    ;;
  --build)
    [ $# -eq 2 ] || fail "--build takes a folder"
    build "$2"
    echo "device.sh: built into $2"
    ;;
  --from)
    [ $# -eq 2 ] || fail "--from takes a folder"
    needs_gpu
    run "$2"
    ;;
  *) fail "unknown argument '$1'; it takes none, --build DIR or --from DIR" ;;
esac
