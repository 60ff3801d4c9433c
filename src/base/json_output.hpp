// JSON as text, whatever bytes its texts have: names of files need not be UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace garonne {

// `indentation`: blanks a level; -1 = all on one line. Bytes that are no UTF-8 become U+FFFD.
template <typename Json>
std::string json_text(const Json& value, int indentation = -1) {
  return value.dump(indentation, ' ', false, Json::error_handler_t::replace);
}

}  // namespace garonne
