# SPDX-License-Identifier: BSD-3-Clause
# Defines the interface target ddp_doctor_torch: include folders, libraries and definitions of one LibTorch.
#
#   DDP_DOCTOR_TORCH          a folder with include/ and lib/ (site-packages/torch, an unpacked LibTorch);
#                             empty: the one that the distribution installed
#   DDP_DOCTOR_TORCH_VERSION  set here, from version.h
#   DDP_DOCTOR_TORCH_HEADERS  set here: the headers worth precompiling (they cost about ten seconds a file), for
#                             target_precompile_headers(x PRIVATE ${DDP_DOCTOR_TORCH_HEADERS}), or REUSE_FROM ddp_doctor_ddp
#
# find_package(Torch) is not used: the configuration file in the CUDA wheels demands a CUDA toolkit, which nothing here
# needs and most users of the wheel do not have.

string(CONCAT _torch_next_action
       "Install LibTorch (scripts/setup does this), or give its path:\n"
       "  -DDDP_DOCTOR_TORCH=$(python3 -c 'import torch,os;print(os.path.dirname(torch.__file__))')\n"
       "or build without it: -DDDP_DOCTOR_WITH_TORCH=OFF")

if(DDP_DOCTOR_TORCH)
  set(_torch_search PATHS ${DDP_DOCTOR_TORCH}/include NO_DEFAULT_PATH)
  set(_torch_library_search PATHS ${DDP_DOCTOR_TORCH}/lib NO_DEFAULT_PATH)
else()
  set(_torch_search "")
  set(_torch_library_search "")
endif()

# Not cached: a changed DDP_DOCTOR_TORCH must not keep the paths of the previous torch.
foreach(_variable IN ITEMS _torch_include _torch_library_cpu _torch_library_c10 _torch_dist_autograd _torch_gloo)
  unset(${_variable})
  unset(${_variable} CACHE)
endforeach()
find_path(_torch_include torch/csrc/distributed/c10d/reducer.hpp ${_torch_search} NO_CACHE)
find_library(_torch_library_cpu torch_cpu ${_torch_library_search} NO_CACHE)
find_library(_torch_library_c10 c10 ${_torch_library_search} NO_CACHE)
if(NOT _torch_include OR NOT _torch_library_cpu OR NOT _torch_library_c10)
  if(DDP_DOCTOR_TORCH)
    set(_torch_where "in DDP_DOCTOR_TORCH=${DDP_DOCTOR_TORCH}")
  else()
    set(_torch_where "on this system")
  endif()
  message(FATAL_ERROR "no LibTorch with torch.distributed found ${_torch_where} "
          "(torch/csrc/distributed/c10d/reducer.hpp, libtorch_cpu, libc10). " "${_torch_next_action}")
endif()

# Newer versions keep the numbers in the second file and include it from the first.
set(_torch_version "")
foreach(_header IN ITEMS torch/csrc/api/include/torch/version.h torch/headeronly/version.h)
  if(EXISTS ${_torch_include}/${_header})
    file(STRINGS ${_torch_include}/${_header} _lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    foreach(_line IN LISTS _lines)
      string(REGEX MATCH "[0-9]+$" _number "${_line}")
      list(APPEND _torch_version ${_number})
    endforeach()
  endif()
endforeach()
list(JOIN _torch_version "." DDP_DOCTOR_TORCH_VERSION)
if(DDP_DOCTOR_TORCH_VERSION VERSION_LESS 1.13)
  message(FATAL_ERROR "LibTorch '${DDP_DOCTOR_TORCH_VERSION}' in ${_torch_include} is too old: 1.13 is the oldest "
          "supported version. " "${_torch_next_action}")
endif()

add_library(ddp_doctor_torch INTERFACE)
target_include_directories(ddp_doctor_torch SYSTEM INTERFACE
                           ${_torch_include} ${_torch_include}/torch/csrc/api/include)
# torch_cpu and c10 are all that training on the CPU needs. libtorch.so would pull libtorch_cuda.so in, which takes
# seconds to load. What torch_cpu itself needs (CUDA's run-time libraries in the CUDA wheels) it finds by its own path.
target_link_libraries(ddp_doctor_torch INTERFACE ${_torch_library_cpu} ${_torch_library_c10})
target_link_options(ddp_doctor_torch INTERFACE -Wl,--allow-shlib-undefined)
# NDEBUG: ATen/record_function.h and c10's reference counts have other layouts without it, and the library has it.
target_compile_definitions(ddp_doctor_torch INTERFACE NDEBUG USE_DISTRIBUTED USE_C10D_GLOO USE_RPC)
# Newer wheels bring fmt's headers, which hide the system's, but not fmt's library. (spdlog's library is built on the
# system's fmt: what links this target cannot use it.)
if(DDP_DOCTOR_TORCH AND EXISTS ${_torch_include}/fmt)
  target_compile_definitions(ddp_doctor_torch INTERFACE FMT_HEADER_ONLY)
endif()
# Executables, too, instead of CMake's -fPIE: gcc takes a precompiled header only where the two flags agree.
target_compile_options(ddp_doctor_torch INTERFACE -fPIC)
if(DDP_DOCTOR_TORCH_VERSION VERSION_LESS 2.0)
  target_compile_definitions(ddp_doctor_torch INTERFACE USE_TENSORPIPE)
endif()

if(DDP_DOCTOR_TORCH)
  get_filename_component(_torch_library_folder ${_torch_library_cpu} DIRECTORY)
  target_link_options(ddp_doctor_torch INTERFACE -Wl,-rpath,${_torch_library_folder})
  # Wheels up to 2.6 were built with the old ABI of std::string; their configuration file tells.
  set(_torch_config ${DDP_DOCTOR_TORCH}/share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${_torch_config})
    file(STRINGS ${_torch_config} _torch_abi REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
    if("${_torch_abi}" MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
      target_compile_definitions(ddp_doctor_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${CMAKE_MATCH_1})
    endif()
  endif()
endif()

# Headers that some installations lack: ddp/compat has a replacement for each, used only if
# it is missing.
find_path(_torch_dist_autograd torch/csrc/distributed/autograd/context/context.h ${_torch_search} NO_CACHE)
if(NOT _torch_dist_autograd)
  target_include_directories(ddp_doctor_torch SYSTEM INTERFACE ${CMAKE_CURRENT_LIST_DIR}/ddp/compat/dist_autograd)
endif()
find_path(_torch_gloo gloo/algorithm.h ${_torch_search} NO_CACHE)
if(NOT _torch_gloo)
  target_include_directories(ddp_doctor_torch SYSTEM INTERFACE ${CMAKE_CURRENT_LIST_DIR}/ddp/compat/gloo)
endif()

set(DDP_DOCTOR_TORCH_HEADERS <torch/torch.h> <torch/script.h> <torch/csrc/distributed/c10d/reducer.hpp>)
message(STATUS "LibTorch ${DDP_DOCTOR_TORCH_VERSION}: ${_torch_library_cpu}")
