// Every failure of Garonne is one of these exceptions; the one catch in apps/ maps them to exit
// codes.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>

namespace garonne {

// The documented exit codes (README, "Exit codes"); 128+n is "killed by signal n".
enum class ExitCode : int {
  Done = 0,
  Other = 1,
  Usage = 2,
  Infeasible = 3,
  Communication = 4,
  Data = 5,
  Refused = 6,
  Requeue = 75,
};

// Base of all errors: a message for the user, the exit code and the place in the source.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message,
        std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), where_(where) {}

  ExitCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ExitCode code_;
  std::source_location where_;
};

// A bug of Garonne itself: a broken promise between its own parts.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message,
                         std::source_location where = std::source_location::current());
};

// Usage or configuration: which key, what was given, why it cannot be, what to do instead.
class ConfigError : public Error {
 public:
  ConfigError(const std::string& key, const std::string& value, const std::string& reason,
              std::source_location where = std::source_location::current());
  // A usage error that belongs to no key.
  explicit ConfigError(const std::string& reason,
                       std::source_location where = std::source_location::current());

  const std::string& key() const { return key_; }
  const std::string& value() const { return value_; }
  const std::string& reason() const { return reason_; }

 private:
  std::string key_;
  std::string value_;
  std::string reason_;
};

// No plan fits: `needed_bytes` is the smallest budget that works, `available_bytes` the one given.
class PlanError : public Error {
 public:
  PlanError(std::int64_t needed_bytes, std::int64_t available_bytes, const std::string& detail,
            std::source_location where = std::source_location::current());

  std::int64_t needed_bytes() const { return needed_bytes_; }
  std::int64_t available_bytes() const { return available_bytes_; }

 private:
  std::int64_t needed_bytes_;
  std::int64_t available_bytes_;
};

// A transport or MPI call failed; `operation` names it.
class CommunicationError : public Error {
 public:
  CommunicationError(const std::string& operation, const std::string& reason,
                     std::source_location where = std::source_location::current());
};

// Data or a checkpoint cannot be read or written; `path` names the file.
class IoError : public Error {
 public:
  IoError(const std::string& path, const std::string& reason,
          std::source_location where = std::source_location::current());

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Refused while running: the allocator said no, or a loss is not finite.
class RefusedError : public Error {
 public:
  explicit RefusedError(const std::string& message,
                        std::source_location where = std::source_location::current());
};

// Asked for something this build does not have, as in "built without NCCL: …".
class NotBuiltError : public Error {
 public:
  NotBuiltError(const std::string& feature, const std::string& remedy,
                std::source_location where = std::source_location::current());
};

// Throws InternalError with `message` unless `condition` holds; checked in every build.
inline void expect(bool condition, const char* message,
                   std::source_location where = std::source_location::current()) {
  if (!condition) throw InternalError(message, where);
}
inline void expect(bool condition, const std::string& message,
                   std::source_location where = std::source_location::current()) {
  if (!condition) throw InternalError(message, where);
}

}  // namespace garonne
