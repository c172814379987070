# SPDX-License-Identifier: BSD-3-Clause
# Debian 12's GCC on the glibc of Debian 11: scripts/wheel makes the sysroot, for each DDP_DOCTOR_ARCH, x86_64 or aarch64.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDP_DOCTOR_ARCH)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${DDP_DOCTOR_ARCH})
set(triple ${DDP_DOCTOR_ARCH}-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
set(CMAKE_C_COMPILER ${triple}-gcc-12)
set(CMAKE_CXX_COMPILER ${triple}-g++-12)
get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/wheel-tools/sysroot-${DDP_DOCTOR_ARCH} ABSOLUTE)
cmake_host_system_information(RESULT host QUERY OS_PLATFORM)
if(NOT host STREQUAL DDP_DOCTOR_ARCH)
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${DDP_DOCTOR_ARCH}-static -L ${CMAKE_SYSROOT})
endif()

# GCC looks into its own folders before the sysroot, and there this system's glibc may be.
set(include ${CMAKE_SYSROOT}/usr/include)
set(gcc ${CMAKE_SYSROOT}/usr/lib/gcc/${triple}/12/include)
set(flags "-B${CMAKE_SYSROOT}/usr/lib/${triple} -nostdinc")
set(c_headers "-isystem ${gcc} -isystem ${include}/${triple} -isystem ${include}")
set(CMAKE_C_FLAGS_INIT "${flags} ${c_headers}")
set(CMAKE_CXX_FLAGS_INIT "${flags} -nostdinc++ -isystem ${include}/c++/12 -isystem ${include}/${triple}/c++/12 ${c_headers}")
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT ${CMAKE_SYSROOT}/glibc.o)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
