// What an action says when it fails, and whether a part is in it.
#pragma once

#include <exception>
#include <functional>
#include <string>

namespace garonne::device {

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace garonne::device
