# SPDX-License-Identifier: BSD-3-Clause
# Writes what PROGRAM makes of its own command line, under OUT: the manual page and the completions.
foreach(kind file IN ZIP_LISTS KINDS FILES)
  get_filename_component(folder ${OUT}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${PROGRAM} generate ${kind} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND gzip -9nf ${OUT}/man/ddp-doctor.1 COMMAND_ERROR_IS_FATAL ANY)
