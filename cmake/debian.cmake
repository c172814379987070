# SPDX-License-Identifier: BSD-3-Clause
# cpack: a Debian package of each component, on the libraries of the Debian that it is built on.
#
#   ddp-doctor         core         the command, the probe for Python, the manual: all that programs in Python need; no torch
#   ddp-doctor-worker  worker       the rank worker for TorchScript programs, and the examples: links the distribution's LibTorch
#   ddp-doctor-dev     development  libraries and headers for programs in C++
set(DDP_DOCTOR_MAINTAINER "the ddp-doctor authors <ddp-doctor@users.noreply.github.com>" CACHE STRING "Maintainer of the packages, as NAME <ADDRESS>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ddp-doctor)
set(CPACK_PACKAGE_VENDOR "the ddp-doctor authors")
set(CPACK_PACKAGE_CONTACT ${DDP_DOCTOR_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL core worker development)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/finish.cmake)
set(CPACK_DDP_DOCTOR_SOURCE ${PROJECT_SOURCE_DIR})

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(same_version "ddp-doctor (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

set(CPACK_DEBIAN_CORE_PACKAGE_NAME ddp-doctor)
set(CPACK_DEBIAN_CORE_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_CORE_PACKAGE_SUGGESTS "ddp-doctor-worker, python3-torch")
set(CPACK_DEBIAN_CORE_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/prerm)
set(CPACK_DEBIAN_CORE_DESCRIPTION "diagnoses data-parallel training with PyTorch
Tells whether the ranks of a data-parallel training program really
synchronize, and if not: why, since which step, on which rank, in which
parameter, and what to change.
This package examines programs in Python with whatever torch they use, and
does not need one itself.")

set(CPACK_DEBIAN_WORKER_PACKAGE_NAME ddp-doctor-worker)
set(CPACK_DEBIAN_WORKER_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS ${same_version})
set(CPACK_DEBIAN_WORKER_DESCRIPTION "rank worker of ddp-doctor for TorchScript programs
Tells whether the ranks of a data-parallel training program really
synchronize, and if not: why.
This package lets ddp-doctor train TorchScript programs under several
strategies side by side, and brings the programs of its demo.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ddp-doctor-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${same_version}, libfmt-dev, libgloo-dev, libsqlite3-dev, libtorch-dev, nlohmann-json3-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "DistributedDataParallel for LibTorch, and its examination
Tells whether the ranks of a data-parallel training program really
synchronize, and if not: why.
This package has what training programs in C++ link: a
DistributedDataParallel, and an examination of them from inside.")
include(CPack)
