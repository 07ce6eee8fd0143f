#!/bin/bash
# Builds targets twice, from two copies of this tree at paths of different depth, in two output
# bases, without any cache and in two environments; then compares the outputs and every action.
#
#   tools/pack/check_reproducible.sh [TARGET...]
#
# Exits 0 when all bytes are the same. KEEP=1 leaves the copies for a look at a difference.
# bazel test //tools/pack:reproducible_test runs it (by hand or from .ci/run: it takes minutes).
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=${here%/tools/pack}
[ $# -gt 0 ] || set -- //tools/pack:distributions
# Not under /tmp, which may be small: two output bases take gigabytes.
parent=${RANKPROOF_SCRATCH:-${XDG_CACHE_HOME:-${HOME:?HOME or RANKPROOF_SCRATCH must be set}/.cache}/rankproof}
mkdir -p "$parent"
work=$(mktemp -d "$parent/reproducible.XXXXXX")

clean_up() {
  local base
  for base in "$work"/first/base "$work"/second/deeper/still/base; do
    [ ! -d "$base" ] || "$root/tools/bazel" --output_base="$base" shutdown >/dev/null 2>&1 || true
  done
  [ -n "${KEEP:-}" ] || { chmod -R u+w "$work" && rm -rf "$work"; }
}
trap clean_up EXIT

# build FOLDER NAME TARGET...: writes NAME.log (actions) and NAME.sums (outputs) beside the folder.
build() {
  local folder=$work/$1 name=$2
  shift 2
  mkdir -p "$folder/tree"
  (cd "$root" && tar c --exclude='./bazel-*' --exclude=./.git --exclude=./out .) |
    tar x -C "$folder/tree"
  (
    cd "$folder/tree"
    bazel=(./tools/bazel --output_base="$folder/base")
    "${bazel[@]}" build --disk_cache= --remote_cache= \
      --execution_log_json_file="$work/$name.log" "$@" >"$work/$name.out" 2>&1 || {
      tail -n 30 "$work/$name.out" >&2
      exit 1
    }
    cd "$("${bazel[@]}" info execution_root 2>/dev/null)"
    (cd "$folder/tree" && "${bazel[@]}" cquery --output=files "set($*)" 2>/dev/null) |
      sort | xargs sha256sum >"$work/$name.sums"
  )
}

echo "building the first copy"
(
  export TZ=UTC LANG=C
  umask 022
  build first first "$@"
)
echo "building the second copy"
(
  export TZ=Asia/Tokyo LANG=C.UTF-8 USER=other PYTHONHASHSEED=7
  umask 077
  build second/deeper/still second "$@"
)
cat "$work/first.sums"
diff "$work/first.sums" "$work/second.sums"
"${RANKPROOF_PYTHON:-python3}" -I "$here/compare_actions.py" "$work/first.log" "$work/second.log"
