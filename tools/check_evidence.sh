#!/bin/bash
# Builds the evidence twice, from two clean clones of the last commit: at paths of different depth,
# in two output bases, as two users, in two time zones and locales; then compares every byte, also
# with the committed package.
#
#   tools/check_evidence.sh
#
# Exits 0 when all bytes are the same. KEEP=1 leaves the clones for a look at a difference. It takes
# minutes: each clone is built from nothing.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=${here%/tools}
# Not under /tmp, which may be small: two output bases take gigabytes.
parent=${RANKPROOF_SCRATCH:-${XDG_CACHE_HOME:-${HOME:?HOME or RANKPROOF_SCRATCH must be set}/.cache}/rankproof}
mkdir -p "$parent"
work=$(mktemp -d "$parent/evidence.XXXXXX")

clean_up() {
  local base
  for base in "$work"/first/base "$work"/second/deeper/still/base; do
    [ ! -d "$base" ] || "$root/tools/bazel" --output_base="$base" shutdown >/dev/null 2>&1 || true
  done
  [ -n "${KEEP:-}" ] || { chmod -R u+w "$work" && rm -rf "$work"; }
}
trap clean_up EXIT

# A user that only this process knows. Where the kernel refuses, the same user runs both.
as_somebody_else=()
if unshare --user --map-user=4711 --map-group=4711 true 2>/dev/null; then
  as_somebody_else=(unshare --user --map-user=4711 --map-group=4711)
else
  echo "no user namespaces here: both runs are of the same user" >&2
fi

# clone FOLDER: a clean clone, with the program built in it.
clone() {
  local folder=$work/$1
  mkdir -p "$folder"
  git clone --quiet --no-hardlinks "$root" "$folder/tree"
  (
    cd "$folder/tree"
    ./tools/bazel --output_base="$folder/base" build //evidence >"$folder/build.out" 2>&1 || {
      tail -n 30 "$folder/build.out" >&2
      exit 1
    }
  )
}

# run FOLDER OUT [COMMAND...]: builds the package into OUT; COMMAND runs the program.
run() {
  local folder=$work/$1 out=$2
  shift 2
  (cd "$folder/tree" && "$@" bazel-bin/evidence/evidence build --out "$out")
}

echo "the first clone"
clone first
(
  umask 022
  run first "$work/first/out" env TZ=UTC LC_ALL=C
)
echo "the second clone"
clone second/deeper/still
(
  umask 077
  run second/deeper/still "$work/second/out" env -i PATH=/usr/bin:/bin HOME=/nonexistent USER=other \
    TZ=Asia/Kathmandu LC_ALL=tr_TR.UTF-8 PYTHONHASHSEED=7 "${as_somebody_else[@]}"
)
compare() {
  echo "$1 and $2:"
  "$work/first/tree/bazel-bin/evidence/evidence" compare "$work/$1" "$work/$2"
}
compare first/out second/out
compare first/tree/testdata/evidence first/out
