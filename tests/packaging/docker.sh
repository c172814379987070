# SPDX-License-Identifier: BSD-3-Clause
# The Dockerfile, built from a clean clone, without a container engine; and the demo, as its user sees it.
. "$(dirname "$0")/lib.sh"
need_images
debian_packages
build "" ddp-doctor
say "image built"
fresh ddp-doctor
config() { images inspect --type image --format "{{.OCIv1.Config.$1}}" ddp-doctor; }
[ "$(config Entrypoint)" = "[ddp-doctor]" ] || fail "the entry point is $(config Entrypoint)"
[[ "$(config User)" =~ ^[1-9][0-9]*$ ]] || fail "the user is $(config User)"

# `buildah run` runs as the image's user in its folder, but leaves the entry point to us.
doctor() { expect "$1" inside ddp-doctor "${@:2}"; }
expect 0 inside sh -c 'id -u; echo $HOME; touch "$HOME/x" && rm "$HOME/x"'; printed '^10001$'; printed '^/home/doctor$'
doctor 0 --version; printed '^ddp-doctor [0-9.]+$'
doctor 0 demo; printed '^orphan'
doctor 1 demo orphan; printed 'DDP201'; printed '^Verdict: sick'
doctor 1 demo curriculum -q; printed 'DDP101'
doctor 1 demo conditional -q; printed 'DDP202'
doctor 0 demo multi_forward; printed 'DDP204'
doctor 0 run /usr/share/ddp-doctor/examples/cnn.pt --strategies ddp --master-port 29517; printed '^Verdict: healthy'
doctor 0 env; printed 'LibTorch 2'
expect 0 inside_as 54321:54321 env HOME=/ ddp-doctor run /usr/share/ddp-doctor/examples/tied.pt -q   # docker run --user
expect 0 inside ls -A /tmp; [ ! -s "$work/out" ] || fail "left in /tmp"
expect 0 inside sh -c "! command -v cc && ! command -v cmake && ! command -v python3"; [ ! -s "$work/out" ] || fail "in the image, which is to be small"
mounted=$(images mount "$container")
dpkg-deb --fsys-tarfile "$state"/debs/ddp-doctor_*.deb | tar -xO ./usr/bin/ddp-doctor | cmp -s - "$mounted/usr/bin/ddp-doctor" ||
  fail "the image has another ddp-doctor than the packages of this build"
say "passed; the image has $(du -sm --one-file-system "$mounted" | cut -f1) MB"
