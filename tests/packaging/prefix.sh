# SPDX-License-Identifier: BSD-3-Clause
# cmake --install, into a prefix that is then moved; and its components by themselves.
# usage: prefix.sh BUILD-FOLDER
. "$(dirname "$0")/lib.sh"
build=$1
expect 0 cmake --install "$build" --prefix "$work/first" --strip
mv "$work/first" "$work/moved"
expect 1 "$work/moved/bin/ddp-doctor" demo orphan; printed 'DDP201'
expect 0 "$work/moved/bin/ddp-doctor" env; printed "installation +$work/moved\$"; printed 'LibTorch [0-9]'
expect 0 "$work/moved/bin/ddp-doctor" run "$work/moved/share/ddp-doctor/examples/cnn.pt" --strategies ddp; printed '^Verdict: healthy'
for file in man/man1/ddp-doctor.1.gz bash-completion/completions/ddp-doctor zsh/site-functions/_ddp-doctor fish/vendor_completions.d/ddp-doctor.fish \
  doc/ddp-doctor/LICENSE; do
  [ -s "$work/moved/share/$file" ] || fail "no share/$file"
done

# The core does without the worker, and says what it lacks; the components together are the whole.
expect 0 cmake --install "$build" --prefix "$work/core" --component core
[ ! -e "$work/core/include" ] && [ ! -e "$work/core/libexec/ddp-doctor/script-probe" ] || fail "the core has more than its own"
expect 0 "$work/core/bin/ddp-doctor" explain DDP101
expect 2 "$work/core/bin/ddp-doctor" demo orphan; said 'apt install ddp-doctor-worker'
for component in worker development; do expect 0 cmake --install "$build" --prefix "$work/core" --component $component; done
diff <(cd "$work/moved" && find . | sort) <(cd "$work/core" && find . | sort) >"$work/out" || fail "the components are not the whole"
say "passed"
