#include "train/setup/whole_budget.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/bytes.hpp"

namespace garonne::train {

PlanError of_whole_budget(const PlanError& error, std::int64_t kept_bytes) {
  // What it says beside its bytes, as it is.
  const std::string_view said = error.what();
  const std::string bytes = PlanError(error.needed_bytes(), error.available_bytes(), "").what();
  std::string detail =
      fmt::format("of both {} are workspaces of libraries", format_bytes(kept_bytes));
  constexpr std::string_view colon = ": ";
  if (said.size() > bytes.size() + colon.size() && said.substr(0, bytes.size()) == bytes)
    detail += "; " + std::string(said.substr(bytes.size() + colon.size()));
  return PlanError(error.needed_bytes() + kept_bytes, error.available_bytes() + kept_bytes, detail);
}

}  // namespace garonne::train
