# SPDX-License-Identifier: BSD-3-Clause
# A project of its own that uses ddp-doctor: configured, built, run.
# usage: run.sh KIND BUILD-FOLDER SOURCE TORCH     KIND: find_package, add_subdirectory, fetch_content; TORCH: DDP_DOCTOR_TORCH, or empty
set -eu
kind=$1 build=$2 source=$3 torch=$4
work=$(mktemp -d "${TMPDIR:-/tmp}/ddp-doctor-consumer-XXXXXX")
trap 'rm -rf "$work"' EXIT
set -- -G Ninja -DCMAKE_BUILD_TYPE= -DCMAKE_UNITY_BUILD=ON ${torch:+"-DDDP_DOCTOR_TORCH=$torch"}
if [ "$kind" = find_package ]; then
  cmake --install "$build" --prefix "$work/installed" >"$work/log"
  set -- "$@" "-DCMAKE_PREFIX_PATH=$work/installed"
  # What is installed stands for itself, wherever the LibTorch it was built with lies.
  ! grep -rnF -e "$source" -e "$build" "$work/installed/lib" "$work/installed/include" --include=*.cmake --include=*.h |
    grep -v 'set(DDP_DOCTOR_TORCH "' || exit 1
else
  set -- "$@" "-DDDP_DOCTOR_SOURCE=$source"
fi
cmake -S "$source/tests/consumers/$kind" -B "$work/build" "$@"
cmake --build "$work/build" --target consumer
"$(find "$work/build" -name consumer -type f -perm -u+x)"
