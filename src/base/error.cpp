#include "base/error.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/printable.hpp"

namespace garonne {
namespace {

// A key may have the path of its file in front.
constexpr std::size_t most_shown_key_bytes = 600;
constexpr std::size_t most_path_bytes = 1000;

}  // namespace

InternalError::InternalError(const std::string& message, std::source_location where)
    : Error(ExitCode::Other,
            printable_message(fmt::format("internal error: {} ({}:{}); please report it", message,
                                          where.file_name(), where.line())),
            where) {}

ConfigError::ConfigError(const std::string& key, const std::string& value,
                         const std::string& reason, std::source_location where)
    : Error(ExitCode::Usage,
            printable_message(fmt::format("{}{}{}: {}", printable(key, most_shown_key_bytes),
                                          value.empty() ? "" : " = ", printable(value), reason)),
            where),
      key_(key),
      value_(value),
      reason_(reason) {}

ConfigError::ConfigError(const std::string& reason, std::source_location where)
    : Error(ExitCode::Usage, printable_message(reason), where), reason_(reason) {}

PlanError::PlanError(std::int64_t needed_bytes, std::int64_t available_bytes,
                     const std::string& detail, std::source_location where)
    : Error(
          ExitCode::Infeasible,
          fmt::format("no plan fits memory.budget = {} bytes ({}); the smallest budget that works "
                      "is {} bytes ({}){}{}",
                      available_bytes, format_bytes(available_bytes), needed_bytes,
                      format_bytes(needed_bytes), detail.empty() ? "" : ": ", detail),
          where),
      needed_bytes_(needed_bytes),
      available_bytes_(available_bytes) {}

CommunicationError::CommunicationError(const std::string& operation, const std::string& reason,
                                       std::source_location where)
    : Error(ExitCode::Communication,
            printable_message(fmt::format("{} failed: {}", operation, reason)), where) {}

IoError::IoError(const std::string& path, const std::string& reason, std::source_location where)
    : Error(ExitCode::Data,
            printable_message(fmt::format("{}: {}", printable(path, most_path_bytes), reason)),
            where),
      path_(path) {}

RefusedError::RefusedError(const std::string& message, std::source_location where)
    : Error(ExitCode::Refused, printable_message(message), where) {}

NotBuiltError::NotBuiltError(const std::string& feature, const std::string& remedy,
                             std::source_location where)
    : Error(ExitCode::Usage, fmt::format("built without {}: {}", feature, remedy), where) {}

}  // namespace garonne
