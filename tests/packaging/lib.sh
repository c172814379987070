# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of packages. Those on Debian 13 need root and Debian's buildah and debootstrap, and no container engine:
# nothing runs but what apt, cmake and the packages themselves start, in folders under $PACKAGING_WORK.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/ddp-doctor-packaging-XXXXXX")
state=${PACKAGING_WORK:-$work}
containers=()
leave() {
  local container
  for container in ${containers[@]+"${containers[@]}"}; do images rm "$container" >/dev/null; done
  # buildah mounts its own folder.
  umount "$work/storage/overlay" 2>/dev/null
  rm -rf "$work"
}
mkdir -p "$state"
trap leave EXIT

fail() {
  echo "FAILED: $*" >&2
  [ ! -s "$work/err" ] || { echo "--- stderr"; tail -c 3000 "$work/err"; } >&2
  [ ! -s "$work/out" ] || { echo "--- stdout"; head -c 6000 "$work/out"; } >&2
  exit 1
}
say() { printf '%s: %s (%s s)\n' "$(basename "$0" .sh)" "$*" "$SECONDS"; }

# expect EXIT-CODE COMMAND...: keeps $work/out and $work/err.
expect() {
  local want=$1 got=0
  shift
  last=$*
  "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  [ "$got" = "$want" ] || fail "$last: exit code $got, not $want"
}
printed() { grep -qE -- "$1" "$work/out" || fail "$last: stdout has no line like: $1"; }
said() { grep -qE -- "$1" "$work/err" || fail "$last: stderr has no line like: $1"; }

images() {
  command buildah --storage-driver "${BUILDAH_DRIVER:-overlay}" --root "$state/storage" --runroot "$state/run" "$@"
}

need_images() {
  [ "$(id -u)" = 0 ] || fail "run as root"
  command -v buildah >/dev/null && command -v debootstrap >/dev/null || fail "apt install --no-install-recommends buildah crun debootstrap"
  export BUILDAH_ISOLATION=chroot LC_ALL=C
}

# debian:13-slim, as debootstrap makes it.
base_image() {
  images inspect --type image debian:13-slim >/dev/null 2>&1 && return
  local container
  if [ ! -e "$state/trixie.tar" ]; then
    say "debootstrap"
    debootstrap --variant=minbase --include=ca-certificates trixie "$work/trixie" http://deb.debian.org/debian >"$work/out" 2>&1 || fail "debootstrap"
    rm -rf "$work/trixie/var/cache/apt/archives/"*.deb "$work/trixie/var/lib/apt/lists/"*
    tar -C "$work/trixie" --one-file-system -cf "$state/trixie.tar" .
    rm -rf "$work/trixie"
  fi
  container=$(images from scratch) && containers+=("$container")
  images add -q "$container" "$state/trixie.tar" / >/dev/null && images config --cmd /bin/bash "$container" &&
    images commit -q "$container" debian:13-slim >/dev/null || fail "debian:13-slim"
}

# The clone that is built from: what is committed, and nothing else. Where its content is new, so are all images: buildah does not
# look into what a RUN mounts, and would take the last packages' image for these packages'.
clone() {
  [ -d "$state/clone" ] && [ "$(git -C "$state/clone" rev-parse "HEAD^{tree}")" = "$(git -C "$source" rev-parse "HEAD^{tree}")" ] && return
  rm -rf "$state/clone" "$state/debs"
  images rmi --all --force >/dev/null 2>&1
  git clone -q "$source" "$state/clone" || fail "git clone"
}

# build TARGET TAG: the Dockerfile, up to that stage.
build() { images build --layers --pull-never -q ${1:+--target "$1"} -t "$2" "$state/clone" >"$work/out" 2>"$work/err" || fail "building the image $2"; }

# The packages of the Dockerfile's stage of that name, in $state/debs.
debian_packages() {
  local container mounted
  clone
  base_image
  if [ ! -d "$state/debs" ]; then
    build packages ddp-doctor-packages
    container=$(images from --pull-never ddp-doctor-packages) && containers+=("$container")
    mounted=$(images mount "$container") || fail "mount"
    mkdir "$state/debs" && cp "$mounted"/*.deb "$state/debs"
    images umount "$container" >/dev/null
  fi
  say "packages: $(cd "$state/debs" && du -h -- *.deb | tr '\t\n' '  ')"
}

# fresh IMAGE: a container of it, in $container.
fresh() { container=$(images from --pull-never "$1") && containers+=("$container") || fail "no container of $1"; }
# In it, as root; inside_as USER COMMAND... as another.
inside() { images run "$container" -- "$@"; }
inside_as() { images run --user "$1" "$container" -- "${@:2}"; }
