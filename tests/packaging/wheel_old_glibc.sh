# SPDX-License-Identifier: BSD-3-Clause
# The wheel on an older system: Debian 11 (glibc 2.31, Python 3.9) with a torch of its time, in a chroot; for the other architecture
# under qemu. As root on Debian; downloads 2.3 GB and takes 6 GB for x86-64, where pip's torch comes with CUDA, and a tenth for aarch64.
# usage: wheel_old_glibc.sh [--arch x86_64|aarch64] [WHEEL]
#   WHEEL: made by scripts/wheel; without one it is built. The chroot is kept in PACKAGING_WORK, if that is set.
. "$(dirname "$0")/lib.sh"
arch=$(uname -m)
if [ "${1:-}" = --arch ]; then
  arch=$2
  shift 2
fi
torch=2.0.1
case "$arch" in
  x86_64) debian=amd64 platforms="manylinux1_x86_64 manylinux2014_x86_64 manylinux_2_17_x86_64" ;;
  aarch64) debian=arm64 platforms="manylinux2014_aarch64 manylinux_2_17_aarch64" ;;
  *) fail "no $arch" ;;
esac
[ "$(id -u)" = 0 ] || fail "run as root"
command -v debootstrap >/dev/null || fail "apt install --no-install-recommends debootstrap"
if [ "$arch" != "$(uname -m)" ]; then
  command -v "qemu-$arch-static" >/dev/null && command -v update-binfmts >/dev/null || fail "apt install --no-install-recommends qemu-user-static binfmt-support"
  [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || fail "the kernel has no binfmt_misc"
  update-binfmts --enable "qemu-$arch" 2>/dev/null || fail "update-binfmts"
fi

wheel=${1:-}
if [ -z "$wheel" ]; then
  "$source/scripts/wheel" --arch "$arch" "$work/dist" >"$work/out" 2>"$work/err" || fail "scripts/wheel"
  wheel=$(echo "$work"/dist/*.whl)
fi
say "$(basename "$wheel"), $(($(stat -c %s "$wheel") / 1024)) KiB"

# Debian 11, its packages unpacked: none of them needs more in order to run Python.
root=$state/bullseye-$arch
inside() { chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin:/bin "$@"; }
if [ ! -e "$root/complete" ]; then
  rm -rf "$root"
  debootstrap --foreign --arch="$debian" --variant=minbase --include=python3,python3-pip,python3-venv bullseye "$root" "${DEBIAN_11_MIRROR:-http://deb.debian.org/debian}" \
    >"$work/out" 2>"$work/err" || fail "debootstrap"
  # In a container debootstrap makes a link of it, to itself.
  [ ! -L "$root/proc" ] || { rm "$root/proc" && mkdir "$root/proc"; }
  for package in "$root"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -C "$root" -x --keep-directory-symlink || fail "$package"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  mkdir "$root/wheels"
  # shellcheck disable=SC2086
  python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version 39 --implementation cp --abi cp39 \
    $(printf -- '--platform %s ' $platforms) --dest "$root/wheels" "torch==$torch" 'numpy<2' >"$work/out" 2>"$work/err" || fail "pip download"
  expect 0 inside python3 -m venv /venv
  expect 0 inside /venv/bin/pip install --quiet --no-index --find-links /wheels --no-compile "torch==$torch" numpy
  rm -rf "$root/wheels" "$root/var/cache/apt"
  touch "$root/complete"
fi
leave_chroot() {
  umount "$root/proc" "$root/dev" 2>/dev/null
  leave
}
trap leave_chroot EXIT
mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev" || fail "mount"
say "Debian $(cat "$root/etc/debian_version"), $(inside getconf GNU_LIBC_VERSION), torch $torch on $arch"

cp "$wheel" "$root/root/"
cp "$source/tests/command_line/train.py" "$source/tests/corpus/ddp101_wrapper_bypassed.py" "$root/root/"
expect 0 inside /venv/bin/pip install --quiet --no-index --force-reinstall "/root/$(basename "$wheel")"
show() { sed -n "/${1:-.}/,\$s/^/    /p" "$work/out"; }
doctor() { expect "$1" inside /venv/bin/ddp-doctor "${@:2}"; }
doctor 0 --version; printed '^ddp-doctor [0-9.]+$'; show
doctor 0 env; printed "beside ddp-doctor +/venv/bin/python: Python 3[.]9.*, torch $torch"; show
doctor 0 explain DDP101; printed 'DDP101'
doctor 0 run /root/train.py; printed '^Verdict: healthy'; show '^Findings'
doctor 1 run /root/ddp101_wrapper_bypassed.py -- bug; printed '^DDP101 wrapper-bypassed: error, certain; ranks 0 and 1, from step 1'; show '^Findings'
rm "$root/root/$(basename "$wheel")"
say "passed"
