# SPDX-License-Identifier: MIT
# garonne_embed_texts(<variable> NAMESPACE <namespace> FUNCTION <function> FILES <files>): makes a
# source file, written anew when one of the texts changes, that defines
#   std::string_view <namespace>::<function>(std::string_view name)
# which hands out the text of a file by its plain name and throws InternalError for any other name.
function(garonne_embed_texts variable)
  cmake_parse_arguments(PARSE_ARGV 1 EMBED "" "NAMESPACE;FUNCTION" "FILES")
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${EMBED_FUNCTION}.cpp")
  list(TRANSFORM EMBED_FILES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
  string(REPLACE ";" "," joined "${files}")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" -DFILES=${joined} -DNAMESPACE=${EMBED_NAMESPACE}
      -DFUNCTION=${EMBED_FUNCTION} -DOUTPUT=${output}
      -P "${PROJECT_SOURCE_DIR}/cmake/write_embedded_texts.cmake"
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/cmake/write_embedded_texts.cmake"
    COMMENT "Embedding the texts of ${EMBED_FUNCTION}" VERBATIM)
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
