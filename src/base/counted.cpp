#include "base/counted.hpp"

#include <fmt/format.h>

namespace garonne {

std::string counted(std::int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : one.ends_with("ch") ? "es" : "s");
}

}  // namespace garonne
