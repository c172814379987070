# SPDX-License-Identifier: BSD-3-Clause
# The Debian packages on a fresh Debian 13: lintian; the core without torch; with the worker; a program in Python on Debian's torch; and
# nothing left after they were removed.
. "$(dirname "$0")/lib.sh"
need_images
debian_packages
fresh debian:13-slim
mounted=$(images mount "$container")
in_root() { expect "$1" inside "${@:2}"; }
doctor() { expect "$1" inside_as nobody env HOME=/nonexistent ddp-doctor "${@:2}"; }
install_package() { in_root 0 env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; }
# All files, but those in which apt and dpkg keep their own accounts and caches, and the last version of /etc/group that adduser keeps.
files() {
  (cd "$mounted" && find . -xdev | sed 's/^\.//' |
    grep -vE '^/(var/(cache|log|lib/(apt|dpkg))|etc/ld\.so\.cache|etc/g?(shadow|group|passwd)-|run|proc|sys|dev)(/|$)' | sort)
}

in_root 0 apt-get update -q
files >"$work/before"
mkdir "$mounted/debs"; cp "$state"/debs/*.deb "$mounted/debs"
worker=$(cd "$mounted" && echo debs/ddp-doctor-worker_*.deb)

# The core: no torch.
install_package "/$(cd "$mounted" && echo debs/ddp-doctor_*.deb)"
! inside dpkg-query -W -f '${Package}\n' | grep -E 'torch|worker' || fail "the core brings torch"
doctor 0 --version; printed '^ddp-doctor [0-9.]+$'
doctor 0 explain DDP101; printed '^# DDP101 wrapper-bypassed'
doctor 0 rules; doctor 0 env; printed 'worker'
doctor 2 demo orphan; said 'apt install ddp-doctor-worker'
for file in man/man1/ddp-doctor.1.gz bash-completion/completions/ddp-doctor zsh/vendor-completions/_ddp-doctor \
  fish/vendor_completions.d/ddp-doctor.fish doc/ddp-doctor/copyright; do
  # A slim system may leave documents out: the package must have them all the same.
  inside dpkg -L ddp-doctor | grep -x "/usr/share/$file" >/dev/null || fail "the package has no $file"
done
say "core alone: good"

# With the worker.
install_package "/$worker"
inside dpkg-query -W -f '${Depends}\n' ddp-doctor-worker | grep 'libtorch2' >/dev/null || fail "the worker does not depend on Debian's libtorch"
doctor 1 demo orphan; printed 'DDP201'
doctor 1 demo curriculum -q; printed 'DDP101'
doctor 0 run /usr/share/ddp-doctor/examples/cnn.pt; printed '^Verdict: healthy'
doctor 0 run /usr/share/ddp-doctor/examples/curriculum.pt --out /tmp/run --strategies ddp --format json
mv "$work/out" "$mounted/tmp/run.json"
say "worker: good"

# A program in Python, as root, too, whose Python writes what it compiles. Debian's torch has no libuv.
cp "$source/tests/command_line/train.py" "$source/tests/corpus/ddp101_wrapper_bypassed.py" "$mounted/debs"
install_package python3-torch
in_root 0 env USE_LIBUV=0 ddp-doctor run /debs/train.py; printed '^Verdict: healthy'
in_root 1 env USE_LIBUV=0 ddp-doctor run /debs/ddp101_wrapper_bypassed.py -- bug; printed 'DDP101 wrapper-bypassed'
say "programs in Python: good"

# A report needs no torch.
in_root 0 apt-get purge -q -y --autoremove ddp-doctor-worker python3-torch
! inside dpkg -l | grep -E '^ii +libtorch' || fail "libtorch stays"
doctor 0 report /tmp/run.json; printed '^Verdict: healthy'
doctor 0 report /tmp/run; printed '^Verdict: healthy'
doctor 2 run /debs/x.pt; said 'x.pt: no such file'

# Nothing is left.
in_root 0 apt-get purge -q -y --autoremove ddp-doctor
! inside dpkg -l 'ddp-doctor*' 2>/dev/null | grep ddp-doctor || fail "dpkg still knows it"
rm -rf "$mounted/debs" "$mounted/tmp/run" "$mounted/tmp/run.json"
files >"$work/after"
# Not what belongs to a package: autoremove keeps some of those on which torch depends (adduser).
cat "$mounted"/var/lib/dpkg/info/*.list | sort -u >"$work/owned"
comm -13 "$work/before" "$work/after" | comm -23 - "$work/owned" >"$work/out"
comm -23 "$work/before" "$work/after" >>"$work/out"
[ ! -s "$work/out" ] || fail "files that nobody owns, or that are gone"
say "removed, nothing left"

fresh debian:13-slim
mounted=$(images mount "$container")
mkdir "$mounted/debs"; cp "$state"/debs/*.deb "$mounted/debs"
in_root 0 apt-get update -q
install_package lintian
expect 0 inside sh -c 'lintian --no-cfg --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs /debs/*.deb'
cat "$work/out"
say "passed"
