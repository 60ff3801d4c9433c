#include "train/run/phase.hpp"

#include <utility>

namespace garonne::train {

void Phase::set(std::string text, std::string otherwise) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  otherwise_ = std::move(otherwise);
}

void Phase::set_detail(std::function<std::string(const std::string&)> detail) {
  const std::lock_guard lock(mutex_);
  detail_ = std::move(detail);
}

std::string Phase::text() const {
  const std::lock_guard lock(mutex_);
  const std::string detail = detail_ ? detail_(otherwise_) : otherwise_;
  return detail.empty() ? text_ : text_ + ", " + detail;
}

}  // namespace garonne::train
