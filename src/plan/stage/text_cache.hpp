// What the planner would have kept from one process to the next; whoever plans knows where.
#pragma once

#include <optional>
#include <string>

namespace garonne::plan {

// Texts by name, kept somewhere for later. A cache that forgets, or keeps nothing, is no error.
class TextCache {
 public:
  TextCache() = default;
  TextCache(const TextCache&) = delete;
  TextCache& operator=(const TextCache&) = delete;
  virtual ~TextCache() = default;

  virtual std::optional<std::string> find(const std::string& name) = 0;
  virtual void keep(const std::string& name, const std::string& text) = 0;
  // How people call the text of that name.
  virtual std::string place_of(const std::string& name) const = 0;
  // Told where a text that was found is not understood, before another one is kept in its place.
  virtual void say_damaged(const std::string& reason) = 0;
};

}  // namespace garonne::plan
