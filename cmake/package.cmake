# SPDX-License-Identifier: BSD-3-Clause
# cmake --install, and what find_package(ddp_doctor COMPONENTS core torch) finds:
#
#   ddp_doctor::core   findings from records: <ddp_doctor/check.h>
#   ddp_doctor::torch  the wrapper and the examination, on the LibTorch of this build: <ddp_doctor/examination.h>, ...
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ddp_doctor)

set(core_targets ddp_doctor_digest ddp_doctor_record ddp_doctor_recorder ddp_doctor_placement ddp_doctor_timeline ddp_doctor_wording ddp_doctor_diagnose ddp_doctor_explain ddp_doctor_parity ddp_doctor_report)
set_target_properties(ddp_doctor_report PROPERTIES EXPORT_NAME core)
install(TARGETS ${core_targets} EXPORT ddp_doctor_core ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT ddp_doctor_core NAMESPACE ddp_doctor:: FILE core.cmake DESTINATION ${package_folder} COMPONENT development)

if(DDP_DOCTOR_WITH_TORCH)
  set_target_properties(ddp_doctor_ddp PROPERTIES EXPORT_NAME torch)
  install(TARGETS ddp_doctor_ddp EXPORT ddp_doctor_torch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT ddp_doctor_torch NAMESPACE ddp_doctor:: FILE torch.cmake DESTINATION ${package_folder} COMPONENT development)
  # A consumer's LibTorch is looked for as ours is: find_package(Torch) asks for CUDA where the wheel has it.
  install(FILES probes/libtorch/FindTorchLibrary.cmake DESTINATION ${package_folder} COMPONENT development)
  install(DIRECTORY probes/libtorch/ddp/compat DESTINATION ${package_folder}/ddp COMPONENT development)
endif()

configure_package_config_file(cmake/ddp_doctorConfig.cmake.in ${PROJECT_BINARY_DIR}/package/ddp_doctorConfig.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/ddp_doctorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/ddp_doctorConfig.cmake ${PROJECT_BINARY_DIR}/package/ddp_doctorConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)

# Those of a wheel are pip's matter.
if(NOT SKBUILD)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddp-doctor)
  install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddp-doctor)
endif()
