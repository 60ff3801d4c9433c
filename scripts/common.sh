# SPDX-License-Identifier: MIT
# Read by the other scripts: where things are, and how to say what happens.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
export PATH=$deps/tools/bin:$PATH

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Compiling a file that includes torch takes up to 2.5 GB.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 2500000)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# The CUDA compiler: on the path, in its usual place, or the private one.
find_nvcc() {
  local candidate
  for candidate in "$(command -v nvcc || true)" "${CUDACXX:-}" /usr/local/cuda/bin/nvcc \
    "$deps"/python/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then echo "$candidate"; return 0; fi
  done
  return 1
}

# find_clang: a clang 16 or newer that has libFuzzer, by the name of its C++ compiler.
find_clang() {
  local candidate folder
  for candidate in clang++-{22..16} clang++; do
    have "$candidate" || continue
    [ "$("$candidate" -dumpversion | cut -d . -f 1)" -ge 16 ] || continue
    folder=$("$candidate" -print-runtime-dir 2>/dev/null) || continue
    # Debian's say a folder by target, and have the one by system.
    if compgen -G "$folder/libclang_rt.fuzzer*" >/dev/null || compgen -G "${folder%/*}/linux/libclang_rt.fuzzer*" >/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# gpu_architecture: what to compile for, 80 or 90, by the GPUs that are here, of unequal ones the oldest: code
# for one runs on newer ones, too. Without a GPU 80, which runs on all.
gpu_architecture() {
  local oldest
  oldest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]$' |
    tr -d . | sort -n | head -n 1) || true
  [ -n "$oldest" ] || oldest=80
  [ "$oldest" -ge 80 ] || die "the GPU of this machine is of architecture $oldest; kernels need 80 (A100) or newer"
  [ "$oldest" -ge 90 ] || oldest=80
  [ "$oldest" = 80 ] || oldest=90
  echo "$oldest"
}

# configure_and_build PRESET TARGET...; with what configure_options has
configure_options=()
configure_and_build() {
  say "configuring preset $1"
  (cd "$root" && cmake --preset "$1" "${configure_options[@]}")
  say "building preset $1 ($(build_jobs) jobs)"
  (cd "$root" && cmake --build --preset "$1" --parallel "$(build_jobs)" --target "${@:2}")
}

# launch_ranks N COMMAND...: under mpirun, with what it only needs here: leave to run as root, and to start
# more ranks than there are cores. Each rank is bound to its share of the cores where there are enough.
launch_ranks() {
  local count=$1 flags=()
  shift
  if mpirun --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE'; then
    [ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
    if [ "$count" -gt "$(nproc)" ]; then
      flags+=(--oversubscribe --bind-to none)
    else
      flags+=(--map-by "slot:PE=$(($(nproc) / count))" --bind-to core)
    fi
  fi
  mpirun "${flags[@]}" -n "$count" "$@"
}
