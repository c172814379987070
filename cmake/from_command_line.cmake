# SPDX-License-Identifier: BSD-3-Clause
# Generates the manual page and the completions from PROGRAM's command line, under OUT.
foreach(kind file IN ZIP_LISTS KINDS FILES)
  get_filename_component(folder ${OUT}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${PROGRAM} generate ${kind} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND gzip -9nf ${OUT}/man/ddp-doctor.1 COMMAND_ERROR_IS_FATAL ANY)
