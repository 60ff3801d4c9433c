#include "base/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace garonne {

Progress::Progress(std::string label, std::int64_t total, bool muted)
    : label_(std::move(label)),
      total_(total),
      visible_(!muted && isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  clear();
}

void Progress::advance_to(std::int64_t done, const std::string& note) {
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_ < 0) {
    first_ = done;
    start_ = now;
  }
  if (drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  draw(done, note);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Progress::draw(std::int64_t done, const std::string& note) {
  constexpr int width = 24;
  std::string line;
  if (total_ > 0) {
    const double share =
        std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    const int filled = static_cast<int>(share * width);
    const double elapsed = std::chrono::duration<double>(last_ - start_).count();
    const double advanced = static_cast<double>(done - first_);
    std::string left;
    if (advanced > 0) {
      const auto seconds =
          static_cast<std::int64_t>(elapsed / advanced * static_cast<double>(total_ - done));
      left = fmt::format("{}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }
    line = fmt::format(
        "{} [{}{}] {:3.0f} % {} {}", label_, std::string(static_cast<std::size_t>(filled), '#'),
        std::string(static_cast<std::size_t>(width - filled), '.'), 100.0 * share, left, note);
  } else {
    line = fmt::format("{} {} {}", label_, done, note);
  }
  std::fputs(("\r\033[K" + line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace garonne
