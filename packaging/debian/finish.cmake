# SPDX-License-Identifier: BSD-3-Clause
# Run by cpack in the folders that become packages: what Debian wants there beyond what cmake --install puts there.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(file_permissions OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
set(components core worker development)
set(packages ddp-doctor ddp-doctor-worker ddp-doctor-dev)
foreach(component package IN ZIP_LISTS components packages)
  set(prefix ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  if(NOT IS_DIRECTORY ${prefix})
    message(FATAL_ERROR "no ${prefix}: where did cpack install the component ${component}?")
  endif()
  set(documents ${prefix}/share/doc/${package})
  file(COPY ${CPACK_DDP_DOCTOR_SOURCE}/packaging/debian/copyright DESTINATION ${documents} FILE_PERMISSIONS ${file_permissions})
  # Debian has names of its own for these.
  file(REMOVE ${documents}/LICENSE ${documents}/CHANGELOG.md)
  configure_file(${CPACK_DDP_DOCTOR_SOURCE}/CHANGELOG.md ${documents}/changelog COPYONLY FILE_PERMISSIONS ${file_permissions})
  file(WRITE ${documents}/changelog.Debian
       "ddp-doctor (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
       "  * See changelog.gz.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
  execute_process(COMMAND gzip -9nf ${documents}/changelog ${documents}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD ${documents}/changelog.gz ${documents}/changelog.Debian.gz PERMISSIONS ${file_permissions})
endforeach()
file(MAKE_DIRECTORY ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/core/usr/share/lintian/overrides)
configure_file(${CPACK_DDP_DOCTOR_SOURCE}/packaging/debian/lintian-overrides
               ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/core/usr/share/lintian/overrides/ddp-doctor COPYONLY FILE_PERMISSIONS ${file_permissions})
