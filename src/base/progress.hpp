// A progress bar for long work: a redrawn line on a terminal, nothing elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace garonne {

// Draws on standard error, at most ten times a second, and only when that is a terminal. Not
// thread-safe.
class Progress {
 public:
  // `total` in the units that `advance_to` counts; 0 = unknown. A muted bar (another rank's) draws
  // nothing.
  Progress(std::string label, std::int64_t total, bool muted = false);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance_to(std::int64_t done, const std::string& note = "");
  // Wipes the line so that other output can be printed; the next advance draws it again.
  void clear();
  bool visible() const { return visible_; }

 private:
  void draw(std::int64_t done, const std::string& note);

  std::string label_;
  std::int64_t total_;
  bool visible_;
  bool drawn_ = false;
  std::int64_t first_ = -1;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace garonne
