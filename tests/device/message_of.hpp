// What an action says when it fails.
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

}  // namespace garonne::device
