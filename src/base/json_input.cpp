#include "base/json_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne {
namespace {

constexpr std::size_t most_shown_bytes = 80;

std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  const std::size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1);
  return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

// Watches what the parser finds; what is beyond the limits never comes into being.
template <typename Json>
class ParseWatch {
 public:
  ParseWatch(const std::string& file, FileOwner owner, std::size_t most_values)
      : file_(file), owner_(owner), most_values_(most_values) {}

  bool operator()(int depth, typename Json::parse_event_t event, Json& parsed) {
    using Event = typename Json::parse_event_t;
    const bool starts = event == Event::object_start || event == Event::array_start;
    if (starts || event == Event::value) ++values_;
    if (event == Event::key) values_ += 2;  // a key takes about as much memory as two values
    if (values_ > most_values_)
      refuse(fmt::format("holds more than {} keys and values", most_values_));
    if (starts && depth >= most_json_depth)
      refuse(fmt::format("is nested more than {} deep", most_json_depth));
    if (event == Event::object_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      last_key_ = parsed.template get<std::string>();
      if (!keys_.back().insert(last_key_).second)
        refuse_value(owner_, file_, last_key_, "", "is given twice in one object");
    }
    return true;
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    refuse_value(owner_, file_, last_key_.empty() ? "" : "at or after " + last_key_, "", reason);
  }

 private:
  const std::string& file_;
  FileOwner owner_;
  std::size_t most_values_;
  std::size_t values_ = 0;
  std::string last_key_;
  std::vector<std::unordered_set<std::string>> keys_;
};

template <typename Json>
Json parse(std::string_view text, const std::string& file, FileOwner owner,
           std::size_t most_values) {
  ParseWatch<Json> watch(file, owner, most_values);
  try {
    return Json::parse(text, [&watch](int depth, typename Json::parse_event_t event, Json& value) {
      return watch(depth, event, value);
    });
  } catch (const typename Json::parse_error& error) {
    watch.refuse(text.find_first_not_of(" \t\r\n") == std::string_view::npos
                     ? "is no JSON: it is empty"
                     : fmt::format("is no JSON from {} on", place_of(text, error.byte)));
  } catch (const typename Json::exception&) {
    watch.refuse("is no JSON: it holds a number that is too large");
  }
}

// The path from `from` to `wanted`, which lies somewhere in it; no deeper than what was parsed.
bool find_path(const nlohmann::json& from, const nlohmann::json& wanted, std::string& path) {
  if (&from == &wanted) return true;
  const std::size_t length = path.size();
  if (from.is_object()) {
    for (auto member = from.begin(); member != from.end(); ++member) {
      path += (length == 0 ? "" : ".") + member.key();
      if (find_path(*member, wanted, path)) return true;
      path.resize(length);
    }
  } else if (from.is_array()) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      path += fmt::format("[{}]", i);
      if (find_path(from[i], wanted, path)) return true;
      path.resize(length);
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& file, FileOwner owner,
                          std::size_t most_values) {
  return parse<nlohmann::json>(text, file, owner, most_values);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file,
                                          FileOwner owner, std::size_t most_values) {
  return parse<nlohmann::ordered_json>(text, file, owner, most_values);
}

void refuse_value(FileOwner owner, const std::string& file, const std::string& key,
                  const std::string& value, const std::string& reason) {
  if (owner == FileOwner::User)
    throw ConfigError(key.empty() ? file : file + ": " + key, value, reason);
  const std::string given = value.empty() ? "" : " = " + printable(value);
  throw IoError(file, key.empty() ? reason : printable(key) + given + ": " + reason);
}

JsonPlace JsonFile::root() const {
  return {*this, root_};
}

void JsonFile::refuse(const std::string& key, const std::string& value,
                      const std::string& reason) const {
  refuse_value(owner_, name_, key, value, reason);
}

std::string JsonPlace::key_path() const {
  std::string path;
  expect(find_path(file_->root_, *value_, path), "a value that is read is not in its file");
  return path;
}

void JsonPlace::refuse(const std::string& reason) const {
  file_->refuse(key_path(), shown(), reason);
}

std::string JsonPlace::shown() const {
  if (value_->is_array()) return fmt::format("a list of {}", value_->size());
  if (value_->is_object()) return fmt::format("an object of {}", value_->size());
  if (!value_->is_string()) return value_->dump();
  const auto& text = value_->get_ref<const std::string&>();
  return text.empty() ? "\"\"" : printable(text, most_shown_bytes);
}

void JsonPlace::expect_object() const {
  if (!value_->is_object()) refuse("is no object");
}

void JsonPlace::expect_list() const {
  if (!value_->is_array()) refuse("is no list");
}

void JsonPlace::expect_keys(std::initializer_list<std::string_view> needed,
                            std::initializer_list<std::string_view> allowed) const {
  expect_object();
  for (const std::string_view name : needed) member(name);
  for (auto entry = value_->begin(); entry != value_->end(); ++entry) {
    const std::string& name = entry.key();
    const auto is_name = [&name](std::string_view known) { return name == known; };
    if (std::any_of(needed.begin(), needed.end(), is_name) ||
        std::any_of(allowed.begin(), allowed.end(), is_name))
      continue;
    JsonPlace(*file_, *entry).refuse("is no key of this version");
  }
}

void JsonPlace::expect_format(std::string_view format, std::int64_t version) const {
  const JsonPlace given = key("format");
  if (!given.value_->is_string() || given.value_->get_ref<const std::string&>() != format)
    given.refuse(fmt::format("is no {}", format));
  const JsonPlace number = key("version");
  if (!number.value_->is_number_integer() || *number.value_ != version)
    number.refuse(fmt::format("this build reads version {}", version));
}

const nlohmann::json& JsonPlace::member(std::string_view key) const {
  expect_object();
  const auto found = value_->find(std::string(key));
  if (found != value_->end()) return *found;
  const std::string path = key_path();
  file_->refuse((path.empty() ? "" : path + ".") + std::string(key), "", "is missing");
}

bool JsonPlace::has(std::string_view key) const {
  expect_object();
  return value_->contains(std::string(key));
}

JsonPlace JsonPlace::key(std::string_view key) const {
  return {*file_, member(key)};
}

std::vector<std::pair<std::string, JsonPlace>> JsonPlace::members() const {
  expect_object();
  std::vector<std::pair<std::string, JsonPlace>> result;
  for (auto entry = value_->begin(); entry != value_->end(); ++entry)
    result.emplace_back(entry.key(), JsonPlace(*file_, *entry));
  return result;
}

std::size_t JsonPlace::size() const {
  expect_list();
  return value_->size();
}

JsonPlace JsonPlace::element(std::size_t i) const {
  if (i >= size()) refuse(fmt::format("has no element {}", i));
  return {*file_, (*value_)[i]};
}

std::vector<JsonPlace> JsonPlace::elements() const {
  expect_list();
  std::vector<JsonPlace> result;
  result.reserve(value_->size());
  for (const nlohmann::json& value : *value_) result.emplace_back(*file_, value);
  return result;
}

std::vector<std::int64_t> JsonPlace::integers(std::int64_t least, std::int64_t most) const {
  std::vector<std::int64_t> result;
  for (const JsonPlace& place : elements()) result.push_back(place.integer(least, most));
  return result;
}

std::vector<int> JsonPlace::indices() const {
  std::vector<int> result;
  for (const JsonPlace& place : elements())
    result.push_back(static_cast<int>(place.integer(0, INT32_MAX)));
  return result;
}

std::vector<double> JsonPlace::numbers() const {
  std::vector<double> result;
  for (const JsonPlace& place : elements()) result.push_back(place.number());
  return result;
}

std::vector<std::string> JsonPlace::texts() const {
  std::vector<std::string> result;
  for (const JsonPlace& place : elements()) result.push_back(place.text());
  return result;
}

std::string JsonPlace::text() const {
  if (!value_->is_string()) refuse("is no text");
  return value_->get<std::string>();
}

bool JsonPlace::truth() const {
  if (!value_->is_boolean()) refuse("is neither true nor false");
  return value_->get<bool>();
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  if (!value_->is_number_integer()) refuse("is no integer");
  const bool huge = value_->is_number_unsigned() &&
                    value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t number = huge ? INT64_MAX : value_->get<std::int64_t>();
  if (number < least) refuse(least == 0 ? "is negative" : fmt::format("is below {}", least));
  if (huge || number > most) refuse(fmt::format("is above {}", most));
  return number;
}

double JsonPlace::number() const {
  if (!value_->is_number()) refuse("is no number");
  const auto number = value_->get<double>();
  if (!std::isfinite(number)) refuse("is no finite number");
  return number;
}

double JsonPlace::number(double least, double most) const {
  const double value = number();
  if (value < least) refuse(least == 0 ? "is negative" : fmt::format("is below {}", least));
  if (value > most) refuse(fmt::format("is above {}", most));
  return value;
}

}  // namespace garonne
