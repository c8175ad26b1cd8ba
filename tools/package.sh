#!/usr/bin/env bash
# tools/package.sh: makes build/packages/headroom_VERSION_ARCH.deb, for this release of Debian or
# Ubuntu, and build/packages/headroom-VERSION-linux-ARCH.tar.gz, which runs where it is unpacked on
# this release and newer ones. CUDAToolkit_ROOT names the CUDA whose cuda.h the cuda backend needs.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
source "$root/tools/setup.sh"

ensure_packages "build headroom" "${build_packages[@]}"
generators=TGZ
if command -v dpkg >/dev/null; then
  generators="DEB;TGZ"
  ensure_packages "make a Debian package" "${package_packages[@]}"
else
  say "no Debian package, since there is no dpkg here"
fi
configure release "$root/build"
build "$root/build" headroom_installed
! has_cached "$root/build" HEADROOM_CUDA_H_DIR=HEADROOM_CUDA_H_DIR-NOTFOUND ||
  say "without the cuda backend: cuda.h was not found (CUDAToolkit_ROOT=DIR says where it is)"

rm -rf "$root/build/packages"
(cd "$root/build" && cpack -G "$generators" >package.log 2>&1) ||
  { cat "$root/build/package.log" >&2; die "cpack failed (see above)"; }
rm -rf "$root/build/packages/_CPack_Packages"
ls "$root"/build/packages/*
