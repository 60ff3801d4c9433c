// JSON that comes from outside: parsed within limits, and read value by value with errors that name
// the file and the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace garonne {

// Whose a file is, which decides how it is refused: one that the user gives is a ConfigError, one
// of a run directory, of a checkpoint or of data an IoError.
enum class FileOwner { User, Run };

// Deeper nesting, and more values in all, are refused: what walks through a text by recursion, or
// holds its values, then stays small.
inline constexpr int most_json_depth = 64;
inline constexpr std::size_t most_json_values = std::size_t{1} << 24;

// Parses a whole text. Throws, as `owner` says, and with the line and column: no JSON, nested too
// deeply, more than `most_values` (a key counts for two more), a key given twice in one object.
nlohmann::json parse_json(std::string_view text, const std::string& file,
                          FileOwner owner = FileOwner::User,
                          std::size_t most_values = most_json_values);
// Keeps the order of keys.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file,
                                          FileOwner owner = FileOwner::User,
                                          std::size_t most_values = most_json_values);

// ConfigError or IoError about a key of a file; `value` may be empty.
[[noreturn]] void refuse_value(FileOwner owner, const std::string& file, const std::string& key,
                               const std::string& value, const std::string& reason);

class JsonPlace;

// A parsed file that is being read. Neither the name nor the JSON is copied: both have to outlive
// this, and this all places in it.
class JsonFile {
 public:
  JsonFile(const nlohmann::json& root, const std::string& name, FileOwner owner = FileOwner::User)
      : root_(root), name_(name), owner_(owner) {}

  JsonPlace root() const;
  const std::string& name() const { return name_; }

  // Refuses `key`, which may have a path such as "tasks[3].reads".
  [[noreturn]] void refuse(const std::string& key, const std::string& value,
                           const std::string& reason) const;

 private:
  friend class JsonPlace;
  const nlohmann::json& root_;
  const std::string& name_;
  FileOwner owner_;
};

// A value in a file. Everything that is not what is asked for is refused, with the file and a key
// such as "tasks[3].reads". As cheap to copy as two pointers.
class JsonPlace {
 public:
  JsonPlace(const JsonFile& file, const nlohmann::json& value) : file_(&file), value_(&value) {}

  const nlohmann::json& json() const { return *value_; }
  // The path of this value, as "tasks[3].reads"; empty for the whole file.
  std::string key_path() const;
  [[noreturn]] void refuse(const std::string& reason) const;

  // Objects. `expect_keys` refuses one that lacks a needed key, or has one that is neither.
  void expect_object() const;
  void expect_keys(std::initializer_list<std::string_view> needed,
                   std::initializer_list<std::string_view> allowed = {}) const;
  // {"format": format, "version": version, …}, or a refusal that says which it is instead.
  void expect_format(std::string_view format, std::int64_t version) const;
  bool has(std::string_view key) const;
  JsonPlace key(std::string_view key) const;
  // Pairs of a key and its value, in the order of the keys.
  std::vector<std::pair<std::string, JsonPlace>> members() const;

  // Lists.
  std::size_t size() const;
  JsonPlace element(std::size_t i) const;
  std::vector<JsonPlace> elements() const;
  std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;
  std::vector<int> indices() const;  // integers of [0, 2^31)
  std::vector<double> numbers() const;
  std::vector<std::string> texts() const;

  std::string text() const;
  bool truth() const;
  std::int64_t integer(std::int64_t least = INT64_MIN, std::int64_t most = INT64_MAX) const;
  // Finite, since JSON has no others; within [least, most].
  double number() const;
  double number(double least, double most) const;

 private:
  const nlohmann::json& member(std::string_view key) const;
  void expect_list() const;
  std::string shown() const;

  const JsonFile* file_;
  const nlohmann::json* value_;
};

}  // namespace garonne
