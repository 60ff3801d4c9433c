# SPDX-License-Identifier: MIT
# Run at build time: cmake -DSOURCE= -DGIT= -DFALLBACK= -DOUTPUT= -P write_git_version.cmake
set(version "${FALLBACK}")
if(GIT AND EXISTS "${SOURCE}/.git")
  # Another owner of the folder, as in a container, is no reason to lose the version.
  execute_process(COMMAND "${GIT}" -c safe.directory=* -C "${SOURCE}" describe --always --dirty --tags
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(version "${FALLBACK} (${described})")
  endif()
endif()
set(text "// Written by the build.\n#define GARONNE_VERSION_STRING \"${version}\"\n")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${OUTPUT}" "${text}")
endif()
