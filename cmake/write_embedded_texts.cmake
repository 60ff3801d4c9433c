# SPDX-License-Identifier: MIT
# Run at build time: cmake -DFILES=<a,b> -DNAMESPACE= -DFUNCTION= -DOUTPUT= -P write_embedded_texts.cmake
string(REPLACE "," ";" FILES "${FILES}")
set(entries "")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${file} holds the end mark of an embedded text")
  endif()
  string(APPEND entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by the build.
#include <string>
#include <string_view>
#include <utility>

#include \"base/error.hpp\"

namespace ${NAMESPACE} {

std::string_view ${FUNCTION}(std::string_view name);

std::string_view ${FUNCTION}(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> texts[] = {
${entries}  };
  for (const auto& [known, text] : texts) {
    if (known == name) return text;
  }
  throw garonne::InternalError(\"no text of this name is embedded: \" + std::string(name));
}

}  // namespace ${NAMESPACE}
")
